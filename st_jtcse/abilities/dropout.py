"""Dropout: the rate of a model in training, in place of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from st_jtcse.recipe.ability import Ability

if TYPE_CHECKING:
    from st_jtcse.training.job import Job


class Dropout(Ability):
    """`model.dropout`."""

    block = "model"
    fields = {
        "dropout": (
            float | None,
            Field(
                None,
                ge=0,
                lt=1,
                description="Hidden and attention dropout in training; null keeps the model's own.",
            ),
        )
    }

    def wrap(self, job: Job) -> None:
        """Set every rate."""
        from st_jtcse.modules.dropout_rates import set_dropout

        set_dropout(job.model, self.of(job.stage))
