"""The kinds of views: those of this package, and those that installed packages name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

from st_jtcse.errors import UserError
from st_jtcse.plugins import imported, installed

if TYPE_CHECKING:
    from torch import Tensor

# The group under which packages name theirs.
ENTRY_POINTS = "st_jtcse.views"


@dataclass(eq=False)
class TokenBatch:
    """Tokenised views, as kinds of views change them."""

    ids: Tensor  # (B, T), or one row of all tokens
    width: int  # H, of a token's word embedding
    mask_id: int | None  # of the mask token
    # Which components of the word embeddings stay, (B, T, H).
    kept: Tensor | None = None

    def components(self) -> Tensor:
        """Return what is kept of the word embeddings, at first everything."""
        import torch

        if self.kept is None:
            self.kept = torch.ones(*self.ids.shape, self.width, dtype=torch.bool)
        return self.kept


class View:
    """Base of all kinds of views. What a method does not say, the view does not do."""

    # What of a sentence it changes.
    changes: ClassVar[Literal["nothing", "words", "tokens"]] = "nothing"
    # A sentence of fewer words, or tokens, stays as it is.
    fewest: ClassVar[int] = 2
    # How much of a sentence it changes where a recipe does not say, and what that is a share of.
    share: ClassVar[float | None] = None
    shared: ClassVar[str] = ""
    needs_mask: ClassVar[bool] = False  # whether it needs a mask token
    hides: ClassVar[bool] = False  # whether it hides components of word embeddings

    def words(self, words: Sequence[str], share: float, draw: Random) -> list[str]:
        """Return what becomes of a sentence's words; the draw alone decides."""
        return list(words)

    def tokens(
        self, tokens: TokenBatch, row: int, places: Tensor, some: Tensor, share: float, draw: Random
    ) -> None:
        """Change the tokens of a sentence.

        Args:
            tokens: All tokens.
            row: The sentence's row of them.
            places: Its places there, without special tokens.
            some: Those of them that were drawn by the share.
            share: How much is changed.
            draw: What decides.
        """


def chosen(n: int, share: float, draw: Random) -> list[int]:
    r"""Draw places without repetition, in order: :math:`k = \min(n - 1, \max(1, [\rho n]))` of n
    for the share ρ.
    """
    return sorted(draw.sample(range(n), min(n - 1, max(1, round(share * n)))))


class Crop(View):
    r"""A span of a share ρ: :math:`w_{s+1} \dots w_{s+k}`, s uniform in 0..n-k, k as in
    :func:`chosen`.
    """

    changes = "words"
    share, shared = 0.5, "words that it keeps"

    def words(self, words: Sequence[str], share: float, draw: Random) -> list[str]:
        """Return the span."""
        length = min(len(words) - 1, max(1, round(share * len(words))))
        start = draw.randrange(len(words) - length + 1)
        return list(words[start : start + length])


class Delete(View):
    r"""A share ρ is left out: :math:`(w_i)_{i \notin D}`, D by :func:`chosen`; TSDAE draws every
    word by itself.
    """

    changes = "words"
    share, shared = 0.6, "words that it drops"

    def words(self, words: Sequence[str], share: float, draw: Random) -> list[str]:
        """Return the others."""
        left_out = set(chosen(len(words), share, draw))
        return [word for place, word in enumerate(words) if place not in left_out]


class Broken(View):
    """Stands for a view that cannot be imported."""

    def __init__(self, fault: str) -> None:
        self.fault = fault


@cache
def kinds() -> Mapping[str, View]:
    """Return all kinds of views by name: this package's, then those of installed ones."""
    found: dict[str, View] = {
        "dropout": View(),
        "crop": Crop(),
        "delete": Delete(),
        # The next sentence of the document, which a column of the rows holds.
        "neighbour": View(),
        # The mask token of a prompt around the sentence, which is made as it is tokenised.
        "template": View(),
    }
    for name, point in installed(ENTRY_POINTS).items():
        found.setdefault(name, _installed(point))
    return found


def _installed(point: EntryPoint) -> View:
    try:
        made: View = imported(point, "a view")()
    except UserError as error:
        return Broken(str(error))
    return made


def described() -> str:
    """Say what the share of each kind is, and how much by default."""
    told = []
    for name, kind in kinds().items():
        if kind.share is not None:
            told.append(f"{name} {kind.share:g} of the {kind.shared}")
    return "; ".join(told)
