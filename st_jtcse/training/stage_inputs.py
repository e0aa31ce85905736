"""What stages are trained on: read and checked before anything is, and completed by what models
make of it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset, concatenate_datasets
from sentence_transformers import SentenceTransformer

from st_jtcse import data, processes
from st_jtcse.data.arrow_files import DEFAULT_CACHE
from st_jtcse.data.neighbours import with_neighbourhood_means
from st_jtcse.data.teachers import Form, encoder_of, label_size, with_teacher_labels
from st_jtcse.data.translation import Pivot, round_trip
from st_jtcse.errors import UserError
from st_jtcse.evaluation.own_sets import OwnSet, OwnSetEvaluator, load_own_set
from st_jtcse.recipe.data_blocks import DEV, DataSpec, DevSpec, SourceSpec
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.model_kinds import EVALUATION_BATCH, kind_of
from st_jtcse.training.models import load_frozen, resolver
from st_jtcse.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

# Sets that were read, by what they were read from and the range of their scores.
_Known = dict[tuple[data.Source, tuple[float, float]], OwnSet]


@dataclass(frozen=True)
class Inputs:
    """What a stage reads from files, loaded before anything is trained."""

    # Training sentences or labelled rows; None for a stage that is only assembled.
    sentences: data.Sentences | data.Labelled | None
    evaluators: dict[str, Any]  # Evaluators by the set's name; ``dev`` chooses the checkpoint
    hashes: dict[str, str]  # SHA-256 of every data set
    pair_scores: data.PairScores | None = (
        None  # Judged pairs of the sentences, for a loss that takes them
    )
    anchors: data.Sentences | None = None  # General sentences that are trained on beside them
    sets: dict[str, OwnSet] = field(default_factory=dict)  # What the evaluators are of
    held_out: data.Sentences | None = None  # Sentences that choose the checkpoint

    def stream(self, seed: int) -> IterableDataset | None:
        """Return what is read while it is trained on, in an order of the seed; None where all is
        read before.
        """
        return self.sentences.stream(seed) if isinstance(self.sentences, data.Sentences) else None


def load_inputs(stages: Sequence[StageSpec], cache_dir: Path | None = None) -> dict[str, Inputs]:
    """Read and check the data of stages; what several of them share is read once, large text into
    `cache_dir`.
    """
    texts: dict[str, data.Sentences | data.Labelled] = {}
    known: _Known = {}
    inputs = {}
    for stage in stages:
        sentences = None
        hashes = {}
        if (stage.loss or stage.whitening) and stage.data is not None:
            key = stage.data.model_dump_json()
            if key not in texts:
                texts[key] = _read(stage.data, cache_dir)
            sentences = texts[key]
            hashes["train"] = sentences.sha256
        sets = _load_sets(stage, known)
        if isinstance(sentences, data.Sentences) and sentences.are_images:
            _check_images(stage, sets)
        held_out = None
        if (
            isinstance(sentences, data.Sentences)
            and stage.evaluate
            and stage.evaluate.is_unlabelled
        ):
            sentences, held_out = data.hold_out(sentences)
            hashes |= {"train": sentences.sha256, DEV: held_out.sha256}
        if stage.neighbours is not None and sentences is not None:
            data.needs_index(
                len(sentences.dataset)
            )  # Refuses what it lacks before a teacher embeds them.
        hashes |= {name: own.sha256 for name, own in sets.items()}
        evaluators = {name: evaluator_of(stage, name, own) for name, own in sets.items()}
        judged = None
        if stage.pair_scores is not None and isinstance(sentences, data.Sentences):
            judged = data.load_pair_scores(
                _source_of(stage.pair_scores), sentences.dataset["sentence"][:]
            )
            hashes["pair_scores"] = judged.sha256
        anchors = None
        if stage.neighbours is not None and stage.neighbours.anchors is not None:
            anchors = data.load_sentences(
                [_source_of(source) for source in stage.neighbours.anchors], cache_dir
            )
            anchors = anchors if held_out is None else data.without(anchors, held_out)
            hashes["anchors"] = anchors.sha256
        inputs[stage.name] = Inputs(sentences, evaluators, hashes, judged, anchors, sets, held_out)
    # After all text is split: that there is too little for that says more than that a batch is not
    # full.
    for stage in stages:
        if (rows := inputs[stage.name].sentences) is not None:
            streams = stage.data is not None and stage.data.streaming
            # A stream has no end.
            _check_batch(stage, sys.maxsize if streams else len(rows.dataset))
            _check_classes(stage, rows)
            _check_documents(stage, rows)
    return inputs


def is_local(stage: StageSpec) -> bool:
    """Whether all data of a stage are files; others are on the Hub, or may be."""
    trained_on = stage.data.sources if (stage.loss or stage.whitening) and stage.data else []
    evaluated_on = stage.evaluate.sets.values() if stage.evaluate else []
    return not any(spec.dataset for spec in (*trained_on, *evaluated_on))


def training_set(
    stage: StageSpec, inputs: Inputs, loss: Any, folder: RunFolder, cache_dir: Path | None
) -> tuple[Dataset, dict[str, Any]]:
    """Return the columns that the loss trains on, and what the stage's record says of them.

    What was computed before is read from the cache. Raises UserError if a model cannot be loaded or
    does not fit, or the disk is full.
    """
    cache = DEFAULT_CACHE if cache_dir is None else cache_dir
    if inputs.sentences is None:
        raise UserError(f"Stage {stage.name!r} has no training sentences; give it data.")
    dataset, digest = inputs.sentences.dataset, inputs.sentences.sha256
    if isinstance(inputs.sentences, data.Labelled):
        return dataset, {"unlabelled_rows_skipped": inputs.sentences.skipped_unlabelled}
    if inputs.sentences.streams:
        return dataset, {"sentences": None}  # None knows how many.
    told: dict[str, Any] = {"blank_lines_skipped": inputs.sentences.skipped_blank}
    views = {view.type for view in stage.views or ()}
    if views & {"crop", "delete", "repeat"} and (whole := data.kept_whole(dataset)):
        told["kept_whole"] = whole
        logger.info("%s: %d sentences of one word are kept whole in both views", stage.name, whole)
    with_next = data.with_next if "neighbour" in views else lambda sentences: sentences.dataset
    dataset = with_next(inputs.sentences)
    if stage.augment:
        settings = dict(stage.augment)
        pivots = [Pivot(**dict(pivot)) for pivot in settings.pop("pivots")]
        trip = round_trip(dataset, digest, pivots, settings.pop("mode"), cache, **settings)
        dataset, told["round_trip"] = trip.dataset, trip.counts
        digest = data.sentences_sha256(dataset)
        _check_batch(stage, len(dataset))  # What comes back empty is left out.
    if any(teacher.cache for teacher in stage.teachers):
        teachers, weights, form = _teachers(stage, loss, folder)
        dataset = with_teacher_labels(dataset, digest, teachers, weights, cache, form=form)
        if stage.neighbours is not None:
            own = stage.neighbours
            dataset, told["neighbours_weight"] = with_neighbourhood_means(
                dataset, own.count, own.weight
            )
            if inputs.anchors is not None:
                labelled = with_next(inputs.anchors), inputs.anchors.sha256
                anchors = with_teacher_labels(*labelled, teachers, weights, cache, form=form)
                rows = np.arange(
                    round(len(dataset) * own.anchor_share / (1 - own.anchor_share))
                ) % len(anchors)
                dataset = concatenate_datasets([dataset, anchors.select(rows)])
    return dataset, told


class LiveTeachers:
    """A collator that gives another one each sentence's label, the teachers' vector, which is kept
    nowhere.
    """

    def __init__(self, stage: StageSpec, loss: Any, folder: RunFolder, collate: Any) -> None:
        teachers, weights, form = _teachers(stage, loss, folder)
        self._encode, self._collate = encoder_of(teachers, weights, form), collate
        self.valid_label_columns = collate.valid_label_columns

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return a batch as if its rows had come with their labels."""
        labels = self._encode([row["sentence"] for row in rows]).to_pylist()
        batch: dict[str, Any] = self._collate([row | label for row, label in zip(rows, labels)])
        return batch


def _teachers(
    stage: StageSpec, loss: Any, folder: RunFolder
) -> tuple[list[SentenceTransformer], list[float], Form]:
    teachers = [load_frozen(teacher, resolver(folder)) for teacher in stage.teachers]
    # The recipe's checks let teachers stand only beside a loss that declares their form.
    form = stage.declaration.teachers or "sum"
    if form == "sum":
        check_size(stage, loss, label_size(teachers))
    return teachers, [teacher.weight for teacher in stage.teachers], form


def check_size(stage: StageSpec, loss: Any, size: int) -> None:
    """Refuse labels that the student's embeddings cannot be compared with, before any is
    computed.
    """
    projection = getattr(loss, "projection", None)
    own = loss.model.get_embedding_dimension() if projection is None else projection.out_features
    if own != size:
        told = f"loss.projection_dim is {own}; set it to {size}."
        if projection is None:
            told = f"the student's {own}; use EmbedDistillLoss with projection_dim: {size}."
        raise UserError(
            f"Stage {stage.name!r}: the teachers' embeddings have {size} components, {told}"
        )


def _read(spec: DataSpec, cache_dir: Path | None) -> data.Sentences | data.Labelled:
    sources = [_source_of(source) for source in spec.sources]
    if spec.train:
        return data.load_sentences(sources, cache_dir, spec.streaming)
    return data.load_labelled(sources, spec.labels, spec.score_range, spec.mapping, spec.bins)


def _check_batch(stage: StageSpec, sentences: int) -> None:
    own = int(stage.args.get("per_device_train_batch_size", 8)) if stage.loss else 0
    # In a distributed run the trainer leaves out what does not fill a batch of every process.
    batch = own * processes.count()
    if sentences < batch:
        of_all, fewer = "", ""
        if processes.count() > 1:
            of_all = f" ({own} in each of {processes.count()} processes)"
            fewer = ", or start fewer processes"
        raise UserError(
            f"Stage {stage.name!r} has {sentences} training sentences, fewer than one batch of "
            f"{batch}{of_all}; "
            f"add sentences or lower args.per_device_train_batch_size{fewer}."
        )
    past = stage.declaration.past(stage.loss.arguments) if stage.loss else 0
    if past and past + batch > sentences:
        raise UserError(
            f"Stage {stage.name!r}: loss.{stage.declaration.queue} is {past}, too many beside "
            f"batches of {batch} for "
            f"{sentences} training sentences, which would be negatives of themselves; lower it to "
            f"{sentences - batch} at most, or add sentences."
        )
    if own == 1 and stage.loss and stage.declaration.in_batch:
        raise UserError(
            f"Stage {stage.name!r}: {stage.loss.type} compares the sentences of a batch, found "
            "batches of 1; raise "
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
        way = (
            f"set {'.'.join(map(str, key))} to {max(beyond) + 1:g}" if key else "give data.mapping"
        )
        raise UserError(
            f"{place}: expected a class below {count} for {stage.loss.type} of stage "
            f"{stage.name!r}, found "
            f"{label:g}; correct the row, or {way}."
        )


def _check_images(stage: StageSpec, sets: Mapping[str, OwnSet]) -> None:
    """Refuse what is made of words, where a stage trains on images."""
    of_text: dict[str, Any] = {
        key: getattr(stage, key) for key in ("augment", "views", "pair_scores", "whitening")
    }
    of_text |= {f"model.{key}": getattr(stage.model, key) for key in ("template", "max_seq_length")}
    of_text["neighbours.anchors"] = stage.neighbours and stage.neighbours.anchors
    of_text["evaluate.dev: unlabelled"] = stage.evaluate and stage.evaluate.is_unlabelled
    of_text |= {f"the set {name}": isinstance(own.columns[0][0], str) for name, own in sets.items()}
    if key := next((key for key, given in of_text.items() if given), None):
        raise UserError(
            f"Stage {stage.name!r}: {key!r} is for text, and it trains on images; remove it."
        )


def _check_documents(stage: StageSpec, rows: data.Sentences | data.Labelled) -> None:
    views = {view.type for view in stage.views or ()}
    if "neighbour" in views and isinstance(rows, data.Sentences) and not rows.skipped_blank:
        raise UserError(
            f"Stage {stage.name!r}: the view 'neighbour' needs blank lines between documents, "
            "found none in the "
            "training text; add them, or choose another view."
        )


def _load_sets(stage: StageSpec, known: _Known) -> dict[str, OwnSet]:
    """Read a stage's evaluation sets, by name; those in `known`, which is completed, are not read
    again.

    Raises UserError where one is faulty, or of another kind than a cross-encoder can be measured
    on.
    """
    found, hint = {}, ", or name those of graded pairs with 'columns'"
    if stage.evaluate is not None:
        for name, spec in stage.evaluate.sets.items():
            if isinstance(spec, DevSpec) and spec.unlabelled:
                continue
            source, score_range = _source_of(spec), stage.evaluate.score_range
            key = source, score_range
            if key not in known:
                known[key] = load_own_set(source, source.label, score_range, hint)
            found[name] = known[key]
            if stage.model.cross_encoder is not None and found[name].pairs is None:
                raise UserError(
                    f"Stage {stage.name!r}: a cross-encoder is measured on graded pairs "
                    "(sentence1, sentence2, score), "
                    f"and {source.label} has none; give the stage an 'evaluate' of its own."
                )
    return found


def evaluator_of(stage: StageSpec, name: str, own: OwnSet) -> Any:
    """Return the evaluator of a set; graded pairs have Sentence-Transformers' own."""
    if own.pairs is not None:
        return kind_of(stage.model).evaluator(name, own.pairs)
    return OwnSetEvaluator(own, name, EVALUATION_BATCH)


def _source_of(spec: SourceSpec) -> data.Source:
    """Return what is read by a source of a recipe."""
    given = {key: getattr(spec, key) for key in SourceSpec.model_fields}
    file, columns = given.pop("file"), given.pop("columns")
    return data.Source(
        file=Path(file) if file else None, columns=tuple(columns) if columns else None, **given
    )
