"""What stages read from files, loaded and checked before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from st_jtcse import data
from st_jtcse.errors import UserError
from st_jtcse.recipe.data_blocks import DataSpec, SourceSpec
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.recipe.yaml_source import dotted
from st_jtcse.training.model_kinds import kind_of


@dataclass(frozen=True)
class Inputs:
    """What a stage reads from files, loaded before anything is trained."""

    # Training sentences or labelled rows; None for a stage that is only assembled.
    sentences: data.Sentences | data.Labelled | None
    evaluators: dict[str, Any]  # Spearman evaluators by name; ``dev`` chooses the checkpoint
    hashes: dict[str, str]  # SHA-256 of every data set
    pair_scores: data.PairScores | None = None  # Judged pairs of the sentences, for a loss that takes them


def load_inputs(stages: Sequence[StageSpec]) -> dict[str, Inputs]:
    """Read and check the data of stages; what several of them share is read once."""
    texts: dict[str, data.Sentences | data.Labelled] = {}
    graded: dict[tuple[data.Source, tuple[float, float]], data.Pairs] = {}
    inputs = {}
    for stage in stages:
        sentences = None
        hashes = {}
        if stage.loss is not None and stage.data is not None:
            key = stage.data.model_dump_json()
            if key not in texts:
                texts[key] = _read(stage.data)
            sentences = texts[key]
            _check_batch(stage, len(sentences.dataset))
            _check_classes(stage, sentences)
            hashes["train"] = sentences.sha256
        evaluators = {}
        if stage.evaluate is not None:
            for name, source in stage.evaluate.sets.items():
                graded_key = _source(source), stage.evaluate.score_range
                if graded_key not in graded:
                    graded[graded_key] = data.load_pairs(*graded_key)
                hashes[name] = graded[graded_key].sha256
                evaluators[name] = kind_of(stage.model).evaluator(name, graded[graded_key])
        judged = None
        if stage.pair_scores is not None and isinstance(sentences, data.Sentences):
            judged = data.load_pair_scores(_source(stage.pair_scores), sentences.dataset["sentence"][:])
            hashes["pair_scores"] = judged.sha256
        inputs[stage.name] = Inputs(sentences, evaluators, hashes, judged)
    return inputs


def _read(spec: DataSpec) -> data.Sentences | data.Labelled:
    sources = [_source(source) for source in spec.sources]
    if spec.train:
        return data.load_sentences(sources)
    return data.load_labelled(sources, spec.labels, spec.score_range, spec.mapping, spec.bins)


def _check_batch(stage: StageSpec, sentences: int) -> None:
    batch = int(stage.args.get("per_device_train_batch_size", 8))
    if sentences < batch:
        raise UserError(
            f"Stage {stage.name!r} has {sentences} training sentences, fewer than one batch of {batch}; "
            "add sentences or lower args.per_device_train_batch_size."
        )
    if batch == 1 and stage.loss and stage.declaration.in_batch:
        raise UserError(
            f"Stage {stage.name!r}: {stage.loss.type} compares the sentences of a batch, found batches of 1; raise "
            "args.per_device_train_batch_size."
        )


def _check_classes(stage: StageSpec, rows: data.Sentences | data.Labelled) -> None:
    classes = stage.classes
    if stage.loss is None or classes is None or not isinstance(rows, data.Labelled):
        return
    count, key = classes
    beyond = {label: place for label, place in rows.first_rows.items() if label >= count}
    if beyond:
        label, place = next(iter(beyond.items()))
        way = f"set {dotted(key)} to {max(beyond) + 1:g}" if key else "give data.mapping"
        raise UserError(
            f"{place}: expected a class below {count} for {stage.loss.type} of stage {stage.name!r}, found "
            f"{label:g}; correct the row, or {way}."
        )


def _source(spec: SourceSpec) -> data.Source:
    given = dict(spec)
    file, columns = given.pop("file"), given.pop("columns")
    return data.Source(file=Path(file) if file else None, columns=tuple(columns) if columns else None, **given)
