"""Sentences, graded pairs and labelled rows from files or the Hub."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from st_jtcse.data.known_words import unknown_share
    from st_jtcse.data.labelled import Kind, Labelled, load_labelled
    from st_jtcse.data.nearest import needs_index
    from st_jtcse.data.pairs import Pairs, PairScores, load_pair_scores, load_pairs
    from st_jtcse.data.rows import Source
    from st_jtcse.data.sentences import (
        Sentences,
        hold_out,
        kept_whole,
        load_sentences,
        sentences_sha256,
        with_next,
        without,
    )
    from st_jtcse.data.text_remarks import text_remarks

_HOMES = {
    "Kind": "labelled",
    "Labelled": "labelled",
    "PairScores": "pairs",
    "Pairs": "pairs",
    "Sentences": "sentences",
    "Source": "rows",
    "hold_out": "sentences",
    "kept_whole": "sentences",
    "load_labelled": "labelled",
    "load_pair_scores": "pairs",
    "load_pairs": "pairs",
    "load_sentences": "sentences",
    "needs_index": "nearest",
    "sentences_sha256": "sentences",
    "text_remarks": "text_remarks",
    "unknown_share": "known_words",
    "with_next": "sentences",
    "without": "sentences",
}
__all__ = [
    "Kind",
    "Labelled",
    "PairScores",
    "Pairs",
    "Sentences",
    "Source",
    "hold_out",
    "kept_whole",
    "load_labelled",
    "load_pair_scores",
    "load_pairs",
    "load_sentences",
    "needs_index",
    "sentences_sha256",
    "text_remarks",
    "unknown_share",
    "with_next",
    "without",
]


def __getattr__(name: str) -> Any:
    """Import a name where it is asked for: a recipe is read without the library behind rows."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
