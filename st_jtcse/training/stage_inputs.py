"""What stages are trained on and measured by: read and checked before anything is trained."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from st_jtcse import data, processes
from st_jtcse.errors import UserError
from st_jtcse.evaluation.kept_neighbours import KEPT, beside, sentences_set
from st_jtcse.evaluation.measured_sets import OwnSet
from st_jtcse.evaluation.own_sets import OwnSetEvaluator, load_own_set
from st_jtcse.evaluation.set_columns import holds_sentences
from st_jtcse.recipe.ability import used
from st_jtcse.recipe.blocks import SourceSpec
from st_jtcse.recipe.data_blocks import DevSpec
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.recipe.sources import SET_HINT, source_of
from st_jtcse.training.model_kinds import EVALUATION_BATCH, kind_of

Rows = data.Sentences | data.Labelled
# Sets that were read, by what they were read from, the range of their scores, and whether plain
# sentences are one.
_Known = dict[tuple[data.Source, tuple[float, float], bool], OwnSet]


@dataclass
class Inputs:
    """What a stage reads from files, loaded before anything is trained."""

    # Training sentences or labelled rows; None for a stage that is only assembled.
    sentences: Rows | None
    # Evaluators by the set's name; ``dev`` chooses the checkpoint.
    evaluators: dict[str, Any]
    hashes: dict[str, str]  # SHA-256 of every data set
    # What the evaluators are of.
    sets: dict[str, OwnSet] = field(default_factory=dict)
    kept_out: data.Sentences | None = None  # Sentences that must not be trained on
    # What abilities read beside them, by name.
    read: dict[str, Any] = field(default_factory=dict)
    cache_dir: Path | None = None  # Of large text; None is the default
    count: int | None = None  # Of rows as they were read, before any is held out or drawn

    def read_sentences(self, sources: Sequence[SourceSpec]) -> data.Sentences:
        """Read more sentences than those that the stage's data name."""
        return data.load_sentences([source_of(source) for source in sources], self.cache_dir)

    def read_beside(self, name: str, sources: Sequence[SourceSpec]) -> None:
        """Read sentences that an ability uses beside the stage's own, under one of its
        `data_names`.
        """
        self.read[name] = found = self.trainable(self.read_sentences(sources))
        self.hashes[name] = found.sha256

    def trainable(self, sentences: data.Sentences) -> data.Sentences:
        """Return sentences without those that are kept out."""
        if self.kept_out is None:
            return sentences
        return data.without(sentences, self.kept_out)


def load_inputs(stages: Sequence[StageSpec], cache_dir: Path | None = None) -> dict[str, Inputs]:
    """Read and check the data of stages; what several of them share is read once, large text into
    `cache_dir`.
    """
    texts: dict[str, Rows] = {}
    known: _Known = {}
    found = {stage.name: _inputs_of(stage, texts, known, cache_dir) for stage in stages}
    # After all text is split: that there is too little for that says more than that a batch is not
    # full.
    for stage in stages:
        if (rows := found[stage.name].sentences) is not None:
            check_batch(stage, rows.count)
            _check_classes(stage, rows)
    return found


def _inputs_of(
    stage: StageSpec, texts: dict[str, Rows], known: _Known, cache_dir: Path | None
) -> Inputs:
    inputs = Inputs(None, {}, {}, cache_dir=cache_dir)
    if stage.training_data is not None:
        key = stage.training_data.model_dump_json()
        if key not in texts:
            texts[key] = _read(stage, cache_dir)
        inputs.sentences, inputs.count = texts[key], texts[key].count
        inputs.hashes["train"] = texts[key].sha256
    inputs.sets = _load_sets(stage, known)
    inputs.hashes |= {name: own.sha256 for name, own in inputs.sets.items()}
    for ability in used(stage):
        ability.read(stage, inputs)
    inputs.evaluators = {name: evaluator_of(stage, name, own) for name, own in inputs.sets.items()}
    return inputs


def is_local(stage: StageSpec) -> bool:
    """Whether all data of a stage are files; others are on the Hub, or may be."""
    trained_on = stage.training_data.sources if stage.training_data else []
    evaluated_on = stage.evaluate.sets.values() if stage.evaluate else []
    return not any(spec.dataset for spec in (*trained_on, *evaluated_on))


def _read(stage: StageSpec, cache_dir: Path | None) -> Rows:
    for ability in used(stage):
        rows: Rows | None = ability.load(stage, cache_dir)
        if rows is not None:
            return rows
    spec = stage.data
    assert spec is not None
    sources = [source_of(source) for source in spec.sources]
    if spec.train:
        return data.load_sentences(sources, cache_dir)
    return data.load_labelled(sources, spec.labels, spec.score_range, spec.mapping, spec.bins)


def check_batch(stage: StageSpec, count: int | None) -> None:
    """Refuse so few rows that no batch is full; None is the count of rows without an end."""
    own = stage.batch_size if stage.loss else 0
    # In a distributed run the trainer leaves out what does not fill a batch of every process.
    batch = own * processes.count()
    sentences = sys.maxsize if count is None else count
    if sentences < batch:
        of_all, fewer = "", ""
        if processes.count() > 1:
            of_all = f" ({own} in each of {processes.count()} processes)"
            fewer = ", or start fewer processes"
        raise UserError(
            f"Stage {stage.name!r} has {sentences} training sentences, fewer than one batch of "
            f"{batch}{of_all}; add sentences or lower args.per_device_train_batch_size{fewer}."
        )
    past = stage.declaration.past(stage.loss.arguments) if stage.loss else 0
    if past and past + batch > sentences:
        raise UserError(
            f"Stage {stage.name!r}: loss.{stage.declaration.queue} is {past}, too many beside "
            f"batches of {batch} for {sentences} training sentences, which would be negatives of "
            f"themselves; lower it to {sentences - batch} at most, or add sentences."
        )
    if own == 1 and stage.loss and stage.declaration.in_batch:
        raise UserError(
            f"Stage {stage.name!r}: {stage.loss.type} compares the sentences of a batch, found "
            "batches of 1; raise args.per_device_train_batch_size."
        )


def _check_classes(stage: StageSpec, rows: Rows) -> None:
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
            f"{stage.name!r}, found {label:g}; correct the row, or {way}."
        )


def _load_sets(stage: StageSpec, known: _Known) -> dict[str, OwnSet]:
    """Read a stage's evaluation sets, by name; those in `known`, which is completed, are not read
    again.

    Raises UserError where one is faulty, or of another kind than a cross-encoder can be measured
    on.
    """
    found = {}
    if stage.evaluate is not None:
        for name, spec in stage.evaluate.sets.items():
            if isinstance(spec, DevSpec) and spec.made:
                continue
            source, score_range = source_of(spec), stage.evaluate.score_range
            key = source, score_range, name in stage.evaluate.general
            if key not in known:
                if key[-1] and holds_sentences(source):
                    known[key] = sentences_set(source, source.label)
                else:
                    known[key] = load_own_set(source, source.label, score_range, SET_HINT)
            found[name] = known[key]
            if stage.model.scores_pairs and found[name].pairs is None:
                raise UserError(
                    f"Stage {stage.name!r}: a cross-encoder is measured on graded pairs "
                    f"(sentence1, sentence2, score), and {source.label} has none; give the stage "
                    "an 'evaluate' of its own."
                )
    return found


def beside_start(stage: StageSpec, inputs: Inputs, start: Any) -> Inputs:
    """Return what a stage reads, its general sentences beside the model that it starts from."""
    kept = {name: beside(own, start) for name, own in inputs.sets.items() if own.metric == KEPT}
    if not kept:
        return inputs
    evaluators = {name: evaluator_of(stage, name, own) for name, own in kept.items()}
    return replace(inputs, sets=inputs.sets | kept, evaluators=inputs.evaluators | evaluators)


def evaluator_of(stage: StageSpec, name: str, own: OwnSet) -> Any:
    """Return the evaluator of a set; graded pairs have Sentence-Transformers' own."""
    if own.pairs is not None:
        return kind_of(stage.model).evaluator(name, own.pairs)
    return OwnSetEvaluator(own, name, EVALUATION_BATCH)
