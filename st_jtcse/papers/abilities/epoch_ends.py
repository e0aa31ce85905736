"""Epochs' ends: a stage that is evaluated every so many steps is evaluated there too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

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
        from st_jtcse.papers.abilities.epoch_end_callback import EpochEndCallback

        if not job.small:
            job.callbacks.append(EpochEndCallback())
