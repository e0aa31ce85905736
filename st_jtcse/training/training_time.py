"""Seconds of training beside each entry of the trainer's log."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

SECONDS = "train_seconds"


class TrainingTime(TrainerCallback):
    """Writes into each log entry how long the run has trained, evaluations and saving left out.

    A resumed run goes on counting from its checkpoint's last entry.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._since = 0.0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Start, or go on from the last entry."""
        self._seconds = max((entry.get(SECONDS, 0.0) for entry in state.log_history), default=0.0)
        self._since = time.perf_counter()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Count the step, with the loading of its batch."""
        now = time.perf_counter()
        self._seconds += now - self._since
        self._since = now

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Leave out what passed since the step ended."""
        self._since = time.perf_counter()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Leave out what passed since the step ended."""
        self._since = time.perf_counter()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Add the seconds to the entry just written."""
        state.log_history[-1][SECONDS] = round(self._seconds, 2)


def trained_before(checkpoint: Path) -> float:
    """Return the seconds of training behind a checkpoint, as far as its log tells.

    Args:
        checkpoint: Its folder.
    """
    state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    return max((float(entry.get(SECONDS, 0.0)) for entry in state["log_history"]), default=0.0)
