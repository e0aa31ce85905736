"""The sentence next to each one in its document, and sentences that no view changes."""

from __future__ import annotations

import numpy as np
from datasets import Dataset, concatenate_datasets

from st_jtcse.data.sentences import Sentences

# Bytes a sentence in memory while each is given its next one, as measured: numbers of rows four
# times, of documents twice, and three answers. And the row that is kept.
NEXT_PEAK, NEXT_ROW = 6 * 8 + 3, 8


def with_next(sentences: Sentences) -> Dataset:
    r"""Return the sentences with a column ``neighbour``: the next one of the document, behind its
    last the one before.

    Alone in its document a sentence is its own neighbour.
    """
    rows = np.arange(len(sentences.rows))
    same = np.diff(sentences.rows.with_format("numpy")["document"][:]) == 0
    after, before = np.append(same, False), np.append(False, same)
    neighbours = sentences.dataset.select(
        np.where(after, rows + 1, np.where(before, rows - 1, rows))
    )
    beside = neighbours.rename_column("sentence", "neighbour")
    return concatenate_datasets([sentences.dataset, beside], axis=1)


def kept_whole(dataset: Dataset) -> int:
    """Count the sentences of one word, of which no view of words makes another."""
    return sum(
        len(text.split(maxsplit=1)) < 2
        for batch in dataset.iter(10_000)
        for text in batch["sentence"]
    )
