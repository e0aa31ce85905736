"""What goes on beside a training loop: a guard, an interrupt, a clock, and the weights of
the loss.
"""

from __future__ import annotations

import math
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.training.checkpoints import LOSS_SUM, checkpoint_at

SECONDS = "train_seconds"
LOSS_WEIGHTS = "loss.safetensors"


class FiniteLoss(TrainerCallback):
    """Stops a stage whose loss is NaN or infinite, before anything of that is logged, evaluated or
    saved.

    It looks then and at the end alone: at every step an accelerator would run out of work while it
    is asked.
    """

    def __init__(self, stage: str, loss: nn.Module) -> None:
        self._stage = stage
        self._sums: dict[str, torch.Tensor] = {}
        loss.register_forward_hook(self._add)

    def _add(
        self, module: nn.Module, inputs: Any, output: torch.Tensor | dict[str, torch.Tensor]
    ) -> None:
        # What is not finite stays so in every sum.
        for name, value in (output if isinstance(output, dict) else {"loss": output}).items():
            total = value.detach().float().sum()
            self._sums[name] = self._sums[name] + total if name in self._sums else total

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Look at the terms where something of them is kept."""
        kept = (
            control.should_log
            or control.should_evaluate
            or control.should_save
            or control.should_training_stop
        )
        if not self._sums or not (kept or state.global_step >= state.max_steps):
            return
        for name, total in zip(self._sums, torch.stack(list(self._sums.values())).tolist()):
            if not math.isfinite(total):
                raise UserError(
                    f"Stage {self._stage!r} stopped: the loss term {name!r} is {total}; the last "
                    "checkpoint is kept. Lower args.learning_rate, set args.max_grad_norm, or "
                    "switch off the term."
                )
        self._sums.clear()


class Interrupt(TrainerCallback):
    """The first Ctrl-C of its `with` block saves a checkpoint and stops after the step, the second
    stops at once.
    """

    requested = False

    def __enter__(self) -> Interrupt:
        self._previous = signal.signal(signal.SIGINT, self._request)
        return self

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(signal.SIGINT, self._previous)

    def __exit__(self, *failure: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Ask the trainer to save and stop, in all processes after the same step."""
        if processes.in_any(self.requested):
            self.requested = True
            control.should_save = control.should_training_stop = True


class Patience(TrainerCallback):
    """Stops a training after so many evaluations on end without a new best score; None: never.

    It counts in the log, so that a resumed run stops where an uninterrupted one does; transformers'
    own callback begins to count anew.
    """

    def __init__(self, evaluations: int | None) -> None:
        self._evaluations = evaluations

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Ask the trainer to stop."""
        if self._is_exhausted(args, state):
            control.should_training_stop = True

    def is_over(self, args: TrainingArguments, state: TrainerState) -> bool:
        """Whether a training in this state has nothing left to do."""
        return state.global_step >= state.max_steps or self._is_exhausted(args, state)

    def _is_exhausted(self, args: TrainingArguments, state: TrainerState) -> bool:
        metric = args.metric_for_best_model
        if self._evaluations is None or metric is None:
            return False
        scores = [entry[metric] for entry in state.log_history if metric in entry]
        return bool(scores) and len(scores) - 1 - scores.index(max(scores)) >= self._evaluations


class TrainingTime(TrainerCallback):
    """Writes into each log entry how long the run has trained, evaluations and saving left out.

    A resumed run goes on counting from its checkpoint's last entry.
    """

    def __init__(self) -> None:
        # Seconds of training behind the checkpoint that the run goes on from.
        self.before = 0.0
        self._seconds = 0.0
        self._since = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Start, or go on from the last entry."""
        self.before = max(
            (float(entry.get(SECONDS, 0.0)) for entry in state.log_history), default=0.0
        )
        self._seconds = self.before
        self._since = time.perf_counter()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Count the step, with the loading of its batch."""
        now = time.perf_counter()
        self._seconds += now - self._since
        self._since = now

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Leave out what passed since the step ended."""
        self._since = time.perf_counter()

    on_save = on_evaluate

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Add the seconds to the entry just written."""
        state.log_history[-1][SECONDS] = round(self._seconds, 2)


class LossWeights(TrainerCallback):
    """Saves with each checkpoint what a loss learns beside its model, such as EmbedDistillLoss's
    projection.

    The trainer trains those weights but saves the model's alone, so that a resumed run would start
    them anew.
    """

    def __init__(self, loss: nn.Module, model: nn.Module) -> None:
        self._loss = loss
        self._model = model

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the loss's own weights into the checkpoint."""
        weights = self._own()
        if weights and state.is_world_process_zero:
            path = checkpoint_at(Path(str(args.output_dir)), state.global_step) / LOSS_WEIGHTS
            save_file({name: tensor.contiguous() for name, tensor in weights.items()}, path)

    def load(self, checkpoint: Path) -> None:
        """Read them back."""
        if self._own():
            self._loss.load_state_dict(load_file(checkpoint / LOSS_WEIGHTS), strict=False)

    def _own(self) -> dict[str, Any]:
        # By place, not by name: a loss may call its model as it likes, and tie weights of its own
        # to the model's.
        seen = {tensor.data_ptr() for tensor in self._model.state_dict().values()}
        own: dict[str, Any] = {}
        for name, tensor in self._loss.state_dict().items():
            if tensor.data_ptr() not in seen:
                own[name] = tensor
                seen.add(tensor.data_ptr())
        return own


class TrainLoss(TrainerCallback):
    """Makes the mean loss that ends a resumed stage's log that of all its steps.

    The trainer's own is of the steps since the checkpoint. The sum of those before travels in the
    checkpoint; where it has none, as of earlier versions, no mean is claimed.
    """

    def __init__(self, loss: nn.Module) -> None:
        self._resumed = False
        self._before: float | None = 0.0  # Of the steps behind the checkpoint.
        self._since: torch.Tensor | None = None
        # Of the step at work: several if accumulated.
        self._batches: list[torch.Tensor] = []
        loss.register_forward_hook(self._add)

    def load(self, checkpoint: Path) -> None:
        """Go on from a checkpoint."""
        self._resumed = True
        path = checkpoint / LOSS_SUM
        self._before = float(path.read_text(encoding="utf-8")) if path.is_file() else None

    def _add(
        self, module: nn.Module, inputs: Any, output: torch.Tensor | dict[str, torch.Tensor]
    ) -> None:
        terms = output.values() if isinstance(output, dict) else (output,)
        self._batches.append(torch.stack([term.detach().float().sum() for term in terms]).sum())

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Add the step's mean, without asking the accelerator for it."""
        step = torch.stack(self._batches).mean()
        self._since = step if self._since is None else self._since + step
        self._batches.clear()

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Write the sum into the checkpoint."""
        total = self._total()
        if total is not None and state.is_world_process_zero:
            place = checkpoint_at(Path(str(args.output_dir)), state.global_step)
            (place / LOSS_SUM).write_text(repr(total), encoding="utf-8")

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Correct the entry that ends the log."""
        entry = state.log_history[-1]
        if not self._resumed or "train_loss" not in entry:
            return
        total = self._total()
        if total is None:
            del entry["train_loss"]
        else:
            entry["train_loss"] = total / state.global_step

    def _total(self) -> float | None:
        """Return the sum of all steps, the mean of the processes'."""
        if self._before is None or self._since is None:
            return self._before
        return self._before + processes.mean(self._since).item()
