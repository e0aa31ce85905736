"""The order of a stage's rows, drawn without a Python number for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from accelerate.data_loader import SeedableRandomSampler
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

_AT_ONCE = 1 << 16


class _LeanSampler(SeedableRandomSampler):
    """Gives the order that its base gives, in 4 bytes a row instead of 48."""

    def __iter__(self) -> Iterator[int]:
        rows = len(self.data_source)
        self.generator.manual_seed(self.epoch + self.initial_seed)
        # Both draw the same numbers.
        dtype = torch.int32 if rows < 2**31 else torch.int64
        for some in torch.randperm(rows, generator=self.generator, dtype=dtype).split(_AT_ONCE):
            yield from some.tolist()
        self.set_epoch(self.epoch + 1)


class RowOrder(TrainerCallback):
    """Puts a lean sampler in the place of accelerate's, which holds an epoch's order as a list."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Exchange the sampler; another kind than the default stays."""
        loader = kw["train_dataloader"]
        sampler = loader.get_sampler()
        if type(sampler) is SeedableRandomSampler:
            lean = _LeanSampler(sampler.data_source, generator=sampler.generator, data_seed=sampler.initial_seed)
            loader.set_sampler(lean)
