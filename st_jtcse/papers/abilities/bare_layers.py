"""Bare layers: a twin is trained without the LayerNorms of its towers' last layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from st_jtcse.errors import UserError
from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.yaml_source import Loc

if TYPE_CHECKING:
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.training.job import Job


class BareLayers(Ability):
    """`model.bare_layers`: JTCSE Fig. 8 and TNCSE Fig. 5."""

    block = "model"
    fields = {
        "bare_layers": (
            int | None,
            Field(
                None,
                ge=0,
                description="Train a twin without the LayerNorms of so many of its towers' last "
                "layers; the modulus term then compares the towers' own states, not their "
                "poolers'.",
            ),
        )
    }
    needing = (Need.LOSS,)

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse it where there are no towers."""
        if self.given(placed.spec) and placed.spec.model.towers is None:
            yield (
                placed.at("model", "bare_layers"),
                "expected 'towers' beside 'bare_layers', found none. Give two, or remove it.",
            )

    def wrap(self, job: Job) -> None:
        """Take the LayerNorms out."""
        count = self.of(job.stage)
        if not count:
            return
        twin = job.model[0].model
        kind = twin.config.tower.model_type
        if not hasattr(twin.towers[0], "encoder") or kind not in ("bert", "roberta"):
            raise UserError(
                f"bare_layers needs BERT or RoBERTa towers, found {kind}; choose others, or leave "
                "it out."
            )
        depth = twin.config.tower.num_hidden_layers
        # The model of a rehearsal has fewer layers.
        if count > depth and not job.small:
            raise UserError(
                f"bare_layers: expected at most the towers' {depth} layers, found {count}; "
                "correct it."
            )
        twin.remove_layer_norms(min(count, depth))
