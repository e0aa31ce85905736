"""Views of papers: ESimCSE's repetition, SNCSE's negation, ConSERT's changes of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from st_jtcse.abilities.sentence_views.view_kinds import TokenBatch, View
from st_jtcse.papers.data import word_changes

if TYPE_CHECKING:
    from torch import Tensor


class Repeat(View):
    """Some words stand twice."""

    changes = "words"
    share, shared = 0.32, "words that it doubles at most"

    def words(self, words: Sequence[str], share: float, draw: Random) -> list[str]:
        """Return each copy behind its word."""
        return word_changes.repeat(words, share, draw)


class Negate(View):
    """The opposite, in English."""

    changes, fewest = "words", 1

    def words(self, words: Sequence[str], share: float, draw: Random) -> list[str]:
        """Return it with a "not" more or less."""
        return word_changes.negate(words)


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
        from st_jtcse.data.text_views import chosen

        components = chosen(tokens.width, share, draw)
        tokens.components()[row, places[:, None], components] = False
