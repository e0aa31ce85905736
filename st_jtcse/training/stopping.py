"""Guards of a training loop: a loss that is not finite, and an interrupt."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_jtcse.errors import UserError


class StopOnNonFiniteLoss:
    """Forward hook of a loss that raises at the first NaN or infinite term.

    Args:
        stage: The stage's name, for the message.
    """

    def __init__(self, stage: str) -> None:
        self.stage = stage

    def __call__(self, loss: nn.Module, inputs: Any, output: torch.Tensor | dict[str, torch.Tensor]) -> None:
        """Check one step's terms."""
        terms = output if isinstance(output, dict) else {"loss": output}
        for name, value in terms.items():
            if not torch.isfinite(value).all():
                raise UserError(
                    f"Stage {self.stage!r} stopped: the loss term {name!r} is {float(value.detach().sum())}; the last "
                    "checkpoint is kept. Lower args.learning_rate, set args.max_grad_norm, or switch off the term."
                )


class InterruptCallback(TrainerCallback):
    """Saves a checkpoint and stops after the current step once :attr:`requested` is set."""

    def __init__(self) -> None:
        self.requested = False

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Ask the trainer to save and stop."""
        if self.requested:
            control.should_save = True
            control.should_training_stop = True
        return control


@contextmanager
def interruptible() -> Iterator[InterruptCallback]:
    """Turn the first Ctrl-C into an orderly stop with a checkpoint; the second one stops at once."""
    callback = InterruptCallback()
    previous = signal.getsignal(signal.SIGINT)

    def request(number: int, frame: FrameType | None) -> None:
        callback.requested = True
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, request)
    try:
        yield callback
    finally:
        signal.signal(signal.SIGINT, previous)
