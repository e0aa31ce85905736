"""The trainer's part of evaluations at the ends of epochs."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class EpochEndCallback(TrainerCallback):
    """Has the trainer evaluate and save at the end of each epoch, beside every so many steps."""

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Ask for both; what falls on a step that is evaluated anyway, as the last is, is not
        evaluated twice.
        """
        steps = state.eval_steps if args.eval_strategy == "steps" else None
        if steps and state.global_step % steps and state.global_step < state.max_steps:
            control.should_evaluate = True
            control.should_save = args.save_strategy == "steps"
