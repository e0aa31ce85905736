"""The trainer's callback that evaluates at epochs' ends."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class AtEpochEnds(TrainerCallback):
    """Asks for an evaluation at each epoch's end that no evaluated step falls on."""

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Ask for it, and for a checkpoint where each evaluation has one."""
        by_steps = args.eval_strategy == "steps" and state.eval_steps
        # What falls on a step that is evaluated anyway, as the last is, is not evaluated twice.
        if (
            by_steps
            and state.global_step % state.eval_steps
            and state.global_step < state.max_steps
        ):
            control.should_evaluate = True
            control.should_save = args.save_strategy == "steps"
