"""How much of a text a tokenizer knows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from st_jtcse.errors import UserError

# Where texts are looked at, spread over all, and how many there: neighbours lie on one page.
_PLACES, _RUN = 50, 20


def sample_of(texts: Sequence[str]) -> list[str]:
    """Return about a thousand texts from all over a corpus."""
    starts = range(0, len(texts), max(_RUN, len(texts) // _PLACES))
    return [text for start in starts for text in texts[start : start + _RUN]]


def unknown_share(tokenizer: Any, texts: Sequence[str]) -> float:
    """Return the share of a text's tokens that a tokenizer does not know; 0 for one that knows any.

    Raises UserError where that is more than a half, as for a script that the tokenizer has no words
    of.
    """
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None:
        return 0.0
    sample = sample_of(texts)
    rows = tokenizer(sample, add_special_tokens=False)["input_ids"]
    tokens = list(chain.from_iterable(rows))
    share = tokens.count(unknown) / max(1, len(tokens))
    if share > 0.5:
        raise UserError(
            f"the model's tokenizer does not know {100 * share:.0f} % of the text's tokens, so "
            "nothing can be learned from it; choose a model for the text's language and script."
        )
    return share
