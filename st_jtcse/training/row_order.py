"""The order in which a stage's rows are trained on: another one each epoch, all from one seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from sentence_transformers.base.sampler import DefaultBatchSampler
from torch.utils.data import Sampler
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

# Bytes that each row's place in the order takes in memory.
PLACE = 4


class SeededOrder(Sampler[int]):
    """Draws the order of accelerate's ``SeedableRandomSampler``, in 4 bytes a row instead of 48.

    Args:
        rows: What the rows are of; only its length is read.
        seed: Seed of the first epoch; each later epoch adds one.
    """

    def __init__(self, rows: Any, seed: int) -> None:
        self._count, self._seed, self._epoch = len(rows), seed, 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed + self._epoch)
        # The same numbers as in 8 bytes; torch refuses more rows than these hold.
        order = torch.randperm(self._count, generator=generator, dtype=torch.int32)
        for part in order.split(4096):
            yield from part.tolist()
        self.set_epoch(self._epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Take up an epoch; accelerate calls it in every process."""
        self._epoch = epoch


def random_batches(dataset: Any, *, seed: int, **settings: Any) -> DefaultBatchSampler:
    """Return batches of rows in random order, for ``args.batch_sampler``."""
    return DefaultBatchSampler(SeededOrder(dataset, seed), seed=seed, **settings)


class ReleaseRows(TrainerCallback):
    """Lets the memory go that a step read from the disk.

    Args:
        release: What does it; None where rows are read in another way.
    """

    def __init__(self, release: Callable[[], None] | None) -> None:
        self._release = release or (lambda: None)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Release what was read before the first step."""
        self._release()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Release what the step read."""
        self._release()
