"""Sentences, graded pairs and labelled rows from files or the Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from st_jtcse.lazy_names import lazy_names

if TYPE_CHECKING:
    from st_jtcse.data.column_names import Kind
    from st_jtcse.data.known_words import unknown_share
    from st_jtcse.data.labelled import Labelled, load_labelled
    from st_jtcse.data.lost_text import text_remarks
    from st_jtcse.data.nearest import needs_index
    from st_jtcse.data.pairs import Pairs, PairScores, load_pair_scores, load_pairs
    from st_jtcse.data.rows import Source
    from st_jtcse.data.sentences import (
        Sentences,
        hold_out,
        load_sentences,
        sampled,
        sentences_sha256,
        without,
    )

_HOMES = {
    "Kind": "column_names",
    "Labelled": "labelled",
    "PairScores": "pairs",
    "Pairs": "pairs",
    "Sentences": "sentences",
    "Source": "rows",
    "hold_out": "sentences",
    "load_labelled": "labelled",
    "load_pair_scores": "pairs",
    "load_pairs": "pairs",
    "load_sentences": "sentences",
    "needs_index": "nearest",
    "sampled": "sentences",
    "sentences_sha256": "sentences",
    "text_remarks": "lost_text",
    "unknown_share": "known_words",
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
    "load_labelled",
    "load_pair_scores",
    "load_pairs",
    "load_sentences",
    "needs_index",
    "sampled",
    "sentences_sha256",
    "text_remarks",
    "unknown_share",
    "without",
]

# A recipe is read without the library behind rows.
__getattr__ = lazy_names(__name__, _HOMES)
