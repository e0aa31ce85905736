"""What a stage's trainer reads: its sentences, their round trips and their teachers' vectors."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from datasets import Dataset
from torch import nn

from st_jtcse.data.labelled import Labelled
from st_jtcse.data.shards import DEFAULT_CACHE
from st_jtcse.data.teachers import label_size, with_teacher_labels
from st_jtcse.data.translation import Pivot, round_trip
from st_jtcse.errors import UserError
from st_jtcse.losses.catalogue import declaration_of
from st_jtcse.recipe.schema import AugmentSpec, StageSpec
from st_jtcse.training.models import load_frozen, resolver
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.stage_inputs import Inputs


def training_set(
    stage: StageSpec, inputs: Inputs, loss: nn.Module, folder: RunFolder, cache_dir: Path | None
) -> tuple[Dataset, dict[str, Any]]:
    """Complete a stage's sentences by what the recipe asks for; what was computed before is read from the cache.

    Args:
        stage: A stage that trains.
        inputs: Its loaded files.
        loss: Its loss, which says what labels it takes.
        folder: The run, which holds the teachers that are earlier stages.
        cache_dir: Folder of what was computed before; None for the default.

    Returns:
        The columns that the loss trains on, and what the stage's record says of them.

    Raises:
        UserError: A model cannot be loaded or does not fit, or the disk is full.
    """
    cache = DEFAULT_CACHE if cache_dir is None else cache_dir
    if inputs.sentences is None:
        raise UserError(f"Stage {stage.name!r} has no training sentences; give it data.")
    dataset, digest = inputs.sentences.dataset, inputs.sentences.sha256
    if isinstance(inputs.sentences, Labelled):
        return dataset, {"unlabelled_rows_skipped": inputs.sentences.skipped_unlabelled}
    told: dict[str, Any] = {"blank_lines_skipped": inputs.sentences.skipped_blank}
    if stage.augment:
        dataset, told["round_trip"] = _augmented(stage.augment, dataset, digest, cache)
        digest = _digest(dataset)
    if stage.teachers:
        teachers = [load_frozen(teacher, resolver(folder)) for teacher in stage.teachers]
        weights = [teacher.weight for teacher in stage.teachers]
        # The recipe's checks let teachers stand only beside a loss that declares their form.
        form = declaration_of(type(loss)).teachers or "sum"
        if form == "sum":
            _check_size(stage, loss, label_size(teachers))
        dataset = with_teacher_labels(dataset, digest, teachers, weights, cache, form=form)
    return dataset, told


def _augmented(spec: AugmentSpec, sentences: Dataset, digest: str, cache: Path) -> tuple[Dataset, dict[str, Any]]:
    pivots = [Pivot(**dict(pivot)) for pivot in spec.pivots]
    trip = round_trip(
        sentences,
        digest,
        pivots,
        spec.mode,
        cache,
        beam_size=spec.beam_size,
        max_length=spec.max_length,
        batch_size=spec.batch_size,
        bf16=spec.bf16,
    )
    return trip.dataset, trip.counts


def _digest(sentences: Dataset) -> str:
    digest = hashlib.sha256()
    for start in range(0, len(sentences), 10_000):
        for text in sentences[start : start + 10_000]["sentence"]:
            digest.update(text.encode() + b"\n")
    return digest.hexdigest()


def _check_size(stage: StageSpec, loss: nn.Module, size: int) -> None:
    """Refuse labels that the student's embeddings cannot be compared with, before any is computed."""
    student: Any = loss.model
    own = student.get_embedding_dimension()
    projected = getattr(loss, "projection", None)
    if projected is not None:
        if projected.out_features != size:
            raise UserError(
                f"Stage {stage.name!r}: the teachers' embeddings have {size} components, loss.projection_dim is "
                f"{projected.out_features}; set it to {size}."
            )
    elif own != size:
        raise UserError(
            f"Stage {stage.name!r}: the teachers' embeddings have {size} components, the student's {own}; use "
            f"EmbedDistillLoss with projection_dim: {size}."
        )
