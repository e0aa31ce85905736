"""Samples: a stage that learns enough from a part of a large text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from st_jtcse.recipe.ability import Ability, Need

if TYPE_CHECKING:
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.stage_inputs import Inputs


class Sampled(Ability):
    """`sample`: so many of the sentences, if there are more."""

    fields = {
        "sample": (
            int | None,
            Field(
                None,
                ge=1,
                description="Of more sentences, use this many, drawn at random; what is computed "
                "of each sentence beforehand then costs as little as for a small text. The draw "
                "follows from the text, so that stages with the same number draw the same.",
            ),
        )
    }
    after = ("HeldOut",)
    before = ("HardNegatives", "Mapped", "Neighbourhoods", "RoundTrips")

    def needs(self, stage: StageSpec) -> Mapping[Need, str]:
        """All sentences to draw from."""
        return dict.fromkeys((Need.SENTENCES, Need.ALL_ROWS), self.key)

    def expected_rows(self, stage: StageSpec, rows: int) -> int:
        """No more than are drawn."""
        return min(rows, self.of(stage))

    def read(self, stage: StageSpec, inputs: Inputs) -> None:
        """Draw the sentences."""
        from st_jtcse import data

        if isinstance(inputs.sentences, data.Sentences):
            inputs.sentences = data.sampled(inputs.sentences, self.of(stage))
            inputs.hashes["train"] = inputs.sentences.sha256
