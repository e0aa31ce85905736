"""Batches of texts that are about equally long, so that few of their tokens are padding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc
import torch
from datasets import Dataset, Value
from sentence_transformers.base.sampler import DefaultBatchSampler
from transformers.trainer_pt_utils import get_length_grouped_indices

from st_jtcse.errors import UserError


class LengthGroupedBatchSampler(DefaultBatchSampler):
    """What ``train_sampling_strategy: group_by_length`` is to Sentence-Transformers' trainer, which
    does not read it.

    Each epoch the rows are drawn in another order, sorted by length among some of them as
    transformers does, and cut into batches, which come in random order. A row's length is that of
    its texts in characters.

    Args:
        dataset: Rows with at least one column of texts.
        batch_size: Rows a batch.
        **settings: Those of ``DefaultBatchSampler``.

    Raises:
        UserError: There is no such column.
    """

    def __init__(self, dataset: Dataset, batch_size: int, **settings: Any) -> None:
        super().__init__(dataset, batch_size, **settings)
        texts = [name for name, feature in dataset.features.items() if feature == Value("string")]
        if not texts:
            raise UserError(
                "args.train_sampling_strategy: 'group_by_length' needs rows with texts; remove it."
            )
        rows = dataset.select_columns(texts).with_format("arrow")[:]
        self._lengths = sum(pc.utf8_length(rows[name]).to_numpy() for name in texts).tolist()

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = get_length_grouped_indices(self._lengths, self.batch_size, generator=generator)
        batches = [
            order[start : start + self.batch_size]
            for start in range(0, len(order), self.batch_size)
        ]
        for index in torch.randperm(len(batches), generator=generator).tolist():
            if len(batches[index]) == self.batch_size or not self.drop_last:
                yield batches[index]
