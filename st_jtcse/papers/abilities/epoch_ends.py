"""Epochs' ends: a stage that is evaluated every so many steps is evaluated there too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_jtcse.recipe.ability import Ability, Need

if TYPE_CHECKING:
    from st_jtcse.training.job import Job


class EpochEnds(Ability):
    """`evaluate_epochs`: the authors of CoSENT evaluate every 1,000 steps and after each epoch."""

    fields = {
        "evaluate_epochs": (
            bool,
            Field(
                False,
                description="Evaluate at the end of each epoch too, beside 'eval_strategy: steps'.",
            ),
        )
    }
    needing = (Need.LOSS,)

    def wrap(self, job: Job) -> None:
        """Have the trainer evaluate and save there."""
        if self.given(job.stage) and not job.small:
            job.callbacks.append(_AtEpochEnds())


class _AtEpochEnds(TrainerCallback):
    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        by_steps = args.eval_strategy == "steps" and state.eval_steps
        # What falls on a step that is evaluated anyway, as the last is, is not evaluated twice.
        if (
            by_steps
            and state.global_step % state.eval_steps
            and state.global_step < state.max_steps
        ):
            control.should_evaluate = True
            control.should_save = args.save_strategy == "steps"
