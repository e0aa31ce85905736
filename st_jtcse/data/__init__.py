"""Sentences, graded pairs and labelled rows from files or the Hub."""

from __future__ import annotations

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
