"""Whitening: a layer behind the model that makes its embeddings of the training text isotropic."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import Field

from st_jtcse.errors import UserError
from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.blocks import Block
from st_jtcse.recipe.scale import Demand, Scale
from st_jtcse.recipe.yaml_source import Loc

if TYPE_CHECKING:
    from datasets import Dataset

    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.training.job import Job


class WhiteningSpec(Block):
    """A layer behind the model that gives the training text's embeddings mean 0 and the identity as
    covariance.
    """

    dimensions: int | None = Field(
        None,
        ge=1,
        description="How many components to keep, those with the largest variance first; null: "
        "all.",
    )


class Whitened(Ability):
    """`whitening`: fitted on the stage's sentences, without training."""

    fields = {
        "whitening": (
            WhiteningSpec | None,
            Field(
                None,
                description="Whiten the model's embeddings on the stage's sentences; such a stage "
                "has no loss.",
            ),
        )
    }
    needing = (Need.EMBEDDINGS, Need.ROWS, Need.TEXT, Need.ALL_ROWS)

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse rows that are no sentences."""
        stage = placed.spec
        if not self.given(stage):
            return
        if stage.data is not None and stage.data.pairs is not None:
            yield (
                placed.where("data", "pairs"),
                "expected sentences in data.train beside 'whitening', found pairs. Give 'train' "
                "instead.",
            )

    def demands(self, job: Job, scale: Scale, texts: int) -> Iterator[Demand]:
        """Every text's embedding, in each process."""
        from st_jtcse.training.rates import texts_a_second

        encode = partial(job.model.encode, show_progress_bar=False)
        yield Demand("whitening", "encode", texts, lambda: texts_a_second(job, encode))

    def finish(self, job: Job) -> None:
        """Append the layer; in a rehearsal one of its shape. Raises UserError."""
        from sentence_transformers.sentence_transformer.modules import Dense

        rows = job.inputs.sentences
        if rows is None and not job.small:
            return
        size = int(job.model.get_embedding_dimension() or 0)
        wanted = self.of(job.stage).dimensions or size
        if wanted > size:
            raise UserError(
                f"Stage {job.stage.name!r}: whitening.dimensions is {wanted}, the embedding's "
                f"{size}; lower it."
            )
        if rows is not None:
            _check_count(job.stage.name, rows.dataset, wanted)
        layer: Any = Dense(size, wanted, activation_function=None)
        if rows is not None and not job.small:
            layer = _fitted(job.model, rows.dataset, wanted)
        job.model.append(layer.to(job.model.device, next(job.model.parameters()).dtype))


def _check_count(stage: str, sentences: Dataset, wanted: int) -> None:
    found = len({text for rows in sentences.iter(10_000) for text in rows["sentence"]})
    if found <= wanted:
        raise UserError(
            f"Stage {stage!r}: whitening to {wanted} dimensions needs {wanted + 1} different "
            f"sentences, found {found}; add {wanted + 1 - found}, or lower whitening.dimensions."
        )


def _fitted(model: Any, sentences: Dataset, wanted: int) -> Any:
    from st_jtcse.modules import whitening_of

    encode = partial(model.encode, convert_to_tensor=True, show_progress_bar=False)
    return whitening_of((encode(rows["sentence"]) for rows in sentences.iter(2_000)), wanted)
