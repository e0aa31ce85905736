"""Matryoshka: the loss of an embedding's first components too, so that it can be cut short."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from st_jtcse.errors import UserError
from st_jtcse.recipe.ability import Ability
from st_jtcse.recipe.yaml_source import Loc

if TYPE_CHECKING:
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.training.job import Job

_DIMS, _WEIGHTS = "matryoshka_dims", "matryoshka_weights"


class Matryoshka(Ability):
    """`matryoshka_dims`, and a weight for each: keys that every loss may have."""

    block = "loss"
    fields = {
        _DIMS: (
            list[Annotated[int, Field(ge=1)]] | None,
            Field(
                None,
                min_length=1,
                description="Take the loss of the embedding's first components too, as "
                "MatryoshkaLoss does, e.g. [768, 256].",
            ),
        ),
        _WEIGHTS: (
            list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] | None,
            Field(None, description=f"Factor of each of `{_DIMS}`; default: 1."),
        ),
    }

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse sizes given twice, another number of weights, and models without embeddings."""
        if placed.spec.loss is None:
            return
        dims = self.of(placed.spec) or []
        weights = getattr(placed.spec.loss, _WEIGHTS)
        loc = placed.at("loss")
        if len(set(dims)) < len(dims):
            yield loc, f"expected each of '{_DIMS}' once, found {dims}. Remove the others."
        elif weights is not None and len(weights) != len(dims):
            yield (
                loc,
                f"expected as many '{_WEIGHTS}' as '{_DIMS}', {len(dims)}, found {len(weights)}. "
                "Give one each, or remove them.",
            )
        if dims and placed.spec.model.scores_pairs:
            yield (
                (*loc, _DIMS),
                f"expected a model of embeddings beside '{_DIMS}', found a cross-encoder. Remove "
                "the key.",
            )

    def wrap(self, job: Job) -> None:
        """Put the loss into a MatryoshkaLoss. Raises UserError where it or the model is unfit."""
        from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss

        dims, model, loss, spec = self.of(job.stage), job.model, job.own_loss, job.stage.loss
        assert spec is not None
        whole = int(model.get_embedding_dimension())
        if max(dims) > whole:
            raise UserError(
                f"loss.{_DIMS}: expected sizes of at most {whole}, the embedding's, found "
                f"{max(dims)}. Correct it."
            )
        of_model = {id(weight) for weight in (*model.parameters(), *model.buffers())}
        if any(id(weight) not in of_model for weight in (*loss.parameters(), *loss.buffers())):
            raise UserError(
                f"loss.{_DIMS}: expected a loss that takes embeddings of any size, found "
                f"{spec.type}, which has weights for {whole}. Remove it, or choose another loss."
            )
        job.loss = MatryoshkaLoss(model, loss, dims, getattr(spec, _WEIGHTS))
