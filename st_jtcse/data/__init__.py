"""Sentences and graded pairs from files or the Hub."""

from __future__ import annotations

from st_jtcse.data.pairs import Pairs, load_pairs
from st_jtcse.data.rows import Source
from st_jtcse.data.sources import Sentences, load_sentences

__all__ = ["Pairs", "Sentences", "Source", "load_pairs", "load_sentences"]
