"""Candidates: the best of several models, the start among them, is a stage's result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from st_jtcse.abilities.contest import (
    Entry,
    agreement,
    choose_by,
    taught_ahead,
    taught_set,
    told,
    winner,
)
from st_jtcse.abilities.neighbourhoods import NeighboursSpec
from st_jtcse.abilities.teaching import Taught, TeacherSpec, loaded
from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.blocks import DEV, Block, Text, WeightedModelSpec
from st_jtcse.recipe.scale import Demand, Scale
from st_jtcse.recipe.yaml_source import Loc

if TYPE_CHECKING:
    from datasets import Dataset

    from st_jtcse.evaluation.unique_texts import Vectors
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.job import Job

_SAMPLE = 3000


class CandidatesSpec(Block):
    """Models that compete with the one that the stage starts from.

    `evaluate.dev` chooses among those whose general sets lose no more than `evaluate.retention` and
    `evaluate.kept_neighbours` allow. With 'dev: unlabelled' that is what they share with the
    reference on held-out sentences, or without one with what all of them agree on
    (:func:`agreement`). The start wins a tie, then the one named first.
    """

    models: list[Text] = Field(
        min_length=1,
        description="The candidates, the cheapest first, each written as a model's `base`. Stages "
        "that 'only' leaves out of the run do not compete.",
    )
    reference: list[TeacherSpec] = Field(
        default_factory=list,
        description="With 'dev: unlabelled', models whose summed embeddings, drawn to the topics "
        "of the text, say which neighbours are right; none: what the candidates agree on. Stages "
        "that 'only' leaves out of the run do not count.",
    )
    form: Literal["any", "same"] = Field(
        "any",
        description="same: candidates whose modules are not those of the start, as with maps "
        "behind them, do not compete.",
    )


def _shorthand(value: Any) -> Any:
    if isinstance(value, list):
        return {"models": value}
    return value


class Candidates(Ability):
    """`candidates`: the best of them is the stage's model, without training."""

    fields = {
        "candidates": (
            Annotated[CandidatesSpec, BeforeValidator(_shorthand)] | None,
            Field(
                None,
                description="Models that compete with the stage's own, or a list of them; such a "
                "stage has no loss.",
            ),
        )
    }
    after = ("HeldOut",)

    def needs(self, stage: StageSpec) -> Mapping[Need, str]:
        """Embeddings, and sentences where held-out ones choose."""
        dev = stage.evaluate.dev if stage.evaluate else None
        unlabelled = dev is not None and getattr(dev, "unlabelled", False)
        rows = {Need.ROWS: self.key} if unlabelled else {}
        return {Need.EMBEDDINGS: self.key} | rows

    def models(self, stage: StageSpec) -> Mapping[Loc, WeightedModelSpec]:
        """The candidates, and what they are compared with."""
        own: CandidatesSpec = self.of(stage)
        found: dict[Loc, WeightedModelSpec] = {}
        for at, candidate in enumerate(_specs(own)):
            found["candidates", "models", at] = candidate
        for at, teacher in enumerate(own.reference):
            found["candidates", "reference", at] = teacher
        return found

    def leave_out(self, stage: StageSpec, names: Collection[str]) -> StageSpec:
        """Let only stages of the run compete."""
        own: CandidatesSpec | None = self.of(stage)
        if own is None or not names:
            return stage
        from st_jtcse.recipe.schema import STAGE_PREFIX

        left_out = {f"{STAGE_PREFIX}{name}" for name in names}
        kept = {
            "models": [name for name in own.models if name not in left_out],
            "reference": [each for each in own.reference if each.model not in left_out],
        }
        return stage.model_copy(update={"candidates": own.model_copy(update=kept)})

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse a contest that nothing decides."""
        own, stage = self.of(placed.spec), placed.spec
        if own is None:
            return
        if not own.models:
            text = "expected a candidate that this run has, found none. Add one without 'only'."
            yield placed.at("candidates"), text
        if stage.evaluate is None or stage.evaluate.dev is None:
            text = "expected 'evaluate.dev' to choose by, found none. Add 'evaluate: {dev: "
            yield placed.at("candidates"), f"{text}unlabelled}}'."
        if getattr(stage, "maps", None) is not None:
            text = "expected one of 'maps' and 'candidates', found both. Give each a stage."
            yield placed.at("candidates"), text

    def demands(self, job: Job, scale: Scale, texts: int) -> Iterator[Demand]:
        """The vectors of the reference; all else is of some sentences."""
        own: CandidatesSpec = self.of(job.stage)
        if own.reference and job.inputs.kept_out is not None:
            yield _taught(job, own).demand("reference's vectors", job, scale, texts)

    def ahead(self, job: Job) -> Iterator[Callable[[], Any]]:
        """The vectors that all are compared by, where no labels choose."""
        if DEV in job.inputs.sets or job.inputs.kept_out is None:
            return
        own: CandidatesSpec = self.of(job.stage)
        if own.reference:
            yield from taught_ahead(job, partial(_taught, job, own))
            return
        yield partial(_start_of_text, job)
        yield lambda: _held_vectors(job, job.model)
        for spec in _specs(own):
            yield partial(_held_vectors_of, job, spec)

    def begin(self, job: Job) -> None:
        """Load the candidates, and make the set that chooses. Raises UserError."""
        own: CandidatesSpec = self.of(job.stage)
        entrants = _entrants(job, own)
        job.shared[Candidates] = entrants
        if DEV in job.inputs.sets or job.inputs.kept_out is None:
            return
        if own.reference:
            shared, _ = taught_set(job, _taught(job, own), NeighboursSpec.model_validate({}))
            choose_by(job, shared)
            return
        agreement(job, _start_of_text(job), [_held_vectors(job, model) for _, model in entrants])

    def finish(self, job: Job) -> None:
        """Take the best; in a rehearsal, load them all."""
        if job.small:
            _entrants(job, self.of(job.stage))
            return
        from st_jtcse.training.limits import limits_of
        from st_jtcse.training.model_kinds import kind_of

        evaluate, kind = job.stage.evaluate, kind_of(job.stage.model)
        assert evaluate is not None  # The checks ask for `dev`.
        entries, entrants = [], job.shared[Candidates]
        sets = {name: job.inputs.evaluators[name] for name in (DEV, *evaluate.general)}
        for name, model in entrants:
            general = kind.scores(model, sets)
            entries.append(Entry(name, general.pop(DEV), general))
        limits = limits_of(evaluate, job.inputs.evaluators)
        chosen = winner(entries, limits)
        job.record["candidates"] = told(job.stage.name, entries, chosen, limits)
        job.model = entrants[chosen][1]

    def card(self, record: Mapping[str, Any]) -> str:
        """Say which of them it is."""
        found = record.get("candidates")
        if not found:
            return ""
        others = ", ".join(entry["name"] for entry in found["entries"])
        return (
            f"It is the best of several models by sentences that were held out: of {others}, "
            f"{found['chosen']}."
        )


def _entrants(job: Job, own: CandidatesSpec) -> list[tuple[str, Any]]:
    """Return the start and the candidates that may compete, by their names."""
    from st_jtcse.recipe.schema import STAGE_PREFIX

    found = [("start", job.model)]
    for spec in _specs(own):
        model = job.load(spec)
        if _may_compete(job, own, model):
            found.append((spec.model.removeprefix(STAGE_PREFIX), model))
    return found


def _may_compete(job: Job, own: CandidatesSpec, model: Any) -> bool:
    return own.form == "any" or _form(model) == _form(job.model)


def _specs(own: CandidatesSpec) -> list[WeightedModelSpec]:
    return [WeightedModelSpec.model_validate({"model": name}) for name in own.models]


def _taught(job: Job, own: CandidatesSpec) -> Taught:
    return Taught(*loaded(job, own.reference), "sum")


def _form(model: Any) -> list[Any]:
    return [(type(module), module.get_config_dict()) for module in model]


def _start_of_text(job: Job) -> Vectors:
    """Return the start's vectors of training sentences, of some where all are not known."""
    from st_jtcse import data
    from st_jtcse.data.encoded import kept_vectors
    from st_jtcse.data.fitted_maps import Text

    text = job.sentences
    known = kept_vectors(job.model, text.dataset, text.sha256, job.cache_dir)
    if known is not None:
        return Text(known).some(_SAMPLE)
    step = -(-len(text.dataset) // _SAMPLE)
    some = text.dataset.select(range(0, len(text.dataset), step))
    return _unit_vectors(job.model, some, data.sentences_sha256(some), job.cache_dir)


def _held_vectors_of(job: Job, spec: WeightedModelSpec) -> None:
    model = job.load(spec)
    if _may_compete(job, Candidates().of(job.stage), model):
        _held_vectors(job, model)


def _held_vectors(job: Job, model: Any) -> Vectors:
    held = job.inputs.kept_out
    assert held is not None
    return _unit_vectors(model, held.dataset, held.sha256, job.cache_dir)


def _unit_vectors(model: Any, sentences: Dataset, digest: str, cache_dir: Path) -> Vectors:
    from st_jtcse.data.encoded import encoded
    from st_jtcse.data.fitted_maps import Text

    found = encoded(model, sentences, digest, cache_dir)
    return Text(found).some(len(found))
