"""Views of papers: ESimCSE's repetition, SNCSE's negation, ConSERT's changes of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from st_jtcse.abilities.sentence_views.view_kinds import TokenBatch, View, chosen

if TYPE_CHECKING:
    from torch import Tensor


_AUXILIARIES = frozenset(
    "am is are was were be been do does did has have had can could will would shall should may "
    "might must".split()
)


class Repeat(View):
    r"""k words stand twice, each copy behind its word; k is uniform in
    :math:`0..\max(2, \lfloor ρn \rfloor)`.

    References:
        Wu et al., ESimCSE, COLING 2022, Eq. 2 to 4, ρ = 0.32.
    """

    changes = "words"
    share, shared = 0.32, "words that it doubles at most"

    def words(self, words: Sequence[str], share: float, draw: Random) -> list[str]:
        """Return the words, some of them twice."""
        count = draw.randint(0, min(len(words), max(2, int(share * len(words)))))
        twice = set(draw.sample(range(len(words)), count))
        found = []
        for place, word in enumerate(words):
            found.append(word)
            if place in twice:
                found.append(word)
        return found


class Negate(View):
    """The opposite in English, without a parser; nothing is drawn, and one word is enough.

    The first "not" goes; where there is none, one comes behind the first auxiliary, or before the
    sentence.
    """

    changes, fewest = "words", 1

    def words(self, words: Sequence[str], share: float, draw: Random) -> list[str]:
        """Return it with a "not" more or less."""
        spoken = [word.lower() for word in words]
        if "not" in spoken and len(words) > 1:
            at = spoken.index("not")
            return [*words[:at], *words[at + 1 :]]
        at = next((place for place, word in enumerate(spoken) if word in _AUXILIARIES), -1)
        return [*words[: at + 1], "not" if at >= 0 else "Not", *words[at + 1 :]]


class Shuffle(View):
    """The tokens in another order."""

    changes = "tokens"

    def tokens(
        self, tokens: TokenBatch, row: int, places: Tensor, some: Tensor, share: float, draw: Random
    ) -> None:
        """Have all of them change places."""
        count = len(places)
        tokens.ids[row, places] = tokens.ids[row, places[draw.sample(range(count), count)]]


class Mask(View):
    """Some tokens become the mask token."""

    changes, needs_mask = "tokens", True
    share, shared = 0.15, "tokens that it hides"

    def tokens(
        self, tokens: TokenBatch, row: int, places: Tensor, some: Tensor, share: float, draw: Random
    ) -> None:
        """Hide those that were drawn."""
        assert tokens.mask_id is not None
        tokens.ids[row, some] = tokens.mask_id


class TokenCutoff(View):
    """Some tokens' word embeddings are 0."""

    changes, hides = "tokens", True
    share, shared = 0.15, "tokens that it hides"

    def tokens(
        self, tokens: TokenBatch, row: int, places: Tensor, some: Tensor, share: float, draw: Random
    ) -> None:
        """Hide those that were drawn."""
        tokens.components()[row, some] = False


class FeatureCutoff(View):
    """Some components of all word embeddings are 0."""

    changes, hides = "tokens", True
    share, shared = 0.2, "components that it hides"

    def tokens(
        self, tokens: TokenBatch, row: int, places: Tensor, some: Tensor, share: float, draw: Random
    ) -> None:
        """Draw components, and hide them."""
        components = chosen(tokens.width, share, draw)
        tokens.components()[row, places[:, None], components] = False
