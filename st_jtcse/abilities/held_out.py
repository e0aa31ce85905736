"""Held-out dev: sentences without labels choose the checkpoint, by their teachers' neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from st_jtcse.abilities.contest import choose_by, taught_ahead, taught_set
from st_jtcse.abilities.neighbourhoods import (
    Neighbourhoods,
    NeighboursSpec,
    searched_a_second,
)
from st_jtcse.abilities.sampled import Sampled
from st_jtcse.abilities.streaming import is_streamed
from st_jtcse.abilities.teaching import Taught, Teaching, load_teachers, taught_by
from st_jtcse.errors import UserError
from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.blocks import DEV
from st_jtcse.recipe.scale import Demand, Scale
from st_jtcse.recipe.yaml_source import Loc

if TYPE_CHECKING:
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.job import Job
    from st_jtcse.training.stage_inputs import Inputs


class HeldOut(Ability):
    """`evaluate.dev: unlabelled`: a tenth of the training sentences is kept to measure by."""

    block = "dev"
    fields = {
        "unlabelled": (
            bool,
            Field(
                False,
                title="a tenth of the training sentences, held out",
                description="Choose by held-out training sentences, without labels; 'dev: "
                "unlabelled' is short for it.",
            ),
        )
    }
    after = ("ImageRows",)

    def needs(self, stage: StageSpec) -> Mapping[Need, str]:
        """All sentences, which are texts, and all vectors."""
        told = "dev: unlabelled"
        return {
            Need.ALL_ROWS: told,
            Need.ALL_VECTORS: told,
            Need.TEXT: f"evaluate.{told}",
        }

    def resolve(self, stage: StageSpec) -> StageSpec:
        """Hold sentences out where a stage evaluates as it trains, and nothing else chooses."""
        if not _can_hold_out(stage):
            return stage
        from st_jtcse.recipe.data_blocks import DevSpec, EvaluateSpec

        evaluate = stage.evaluate or EvaluateSpec.model_validate({})
        held_out = DevSpec.model_validate({"unlabelled": True})
        whole = evaluate.model_copy(update={"dev": held_out})
        return stage.model_copy(update={"evaluate": whole})

    def read(self, stage: StageSpec, inputs: Inputs) -> None:
        """Split the sentences."""
        from st_jtcse import data

        if not isinstance(inputs.sentences, data.Sentences):
            return
        inputs.sentences, inputs.kept_out = data.hold_out(inputs.sentences)
        own = {"train": inputs.sentences.sha256, DEV: inputs.kept_out.sha256}
        others = {name: found for name, found in inputs.hashes.items() if name not in own}
        inputs.hashes = own | others

    def demands(self, job: Job, scale: Scale, texts: int) -> Iterator[Demand]:
        """The split, and the search of the held-out sentences' neighbours in the others."""
        from st_jtcse.data.nearest import EXACT
        from st_jtcse.data.neighbours import memory_of_search, weighing
        from st_jtcse.data.sentences import HELD_OUT_PEAK, HELD_OUT_ROW, held_count

        if job.inputs.kept_out is None:
            return
        held = float(HELD_OUT_ROW * texts)
        yield Demand("held-out sentences", held=held, peak=HELD_OUT_PEAK * texts - held)
        if job.stage.loss is None:
            return
        read = min(texts, Sampled().of(job.stage) or texts)
        taught = _or_start(taught_by(job), job)
        near = Neighbourhoods().of(job.stage) or NeighboursSpec.model_validate({})
        if taught.models == [job.model]:
            yield taught.demand("start's vectors", job, scale, read)
        yield Demand(
            "held-out sentences' neighbours",
            "compare",
            weighing(read) + held_count(texts) * read / scale.processes,
            lambda: searched_a_second(taught.size, min(read, EXACT)),
            peak=memory_of_search(read, taught.size, near.count),
        )

    def ahead(self, job: Job) -> Iterator[Callable[[], Any]]:
        """The vectors that it compares with, of all sentences."""
        inputs = job.inputs
        if inputs.kept_out is None or inputs.sentences is None or job.stage.loss is None:
            return
        yield from taught_ahead(job, lambda: _or_start(taught_by(job), job))

    def begin(self, job: Job) -> None:
        """Make the set that chooses.

        Its reference are the vectors of the stage's teachers, or without any of the model that it
        starts from, drawn to their neighbours among the training text as far as that has topics.
        Raises UserError where a teacher cannot be loaded, or nothing could be better than the
        start.
        """
        inputs = job.inputs
        if inputs.kept_out is None or inputs.sentences is None or job.stage.loss is None:
            return  # What is not trained is compared in a contest.
        given = load_teachers(job)
        near = Neighbourhoods().of(job.stage) or NeighboursSpec.model_validate({})
        own, weight = taught_set(job, _or_start(given, job), near)
        if not given.models and not weight:
            raise UserError(
                f"Stage {job.stage.name!r}: 'dev: unlabelled' compares with teachers or with "
                "topics; the stage has no teachers and its text no topics, so the start would "
                "always be the best; give teachers, graded pairs in evaluate.dev, or no "
                "eval_strategy: then the last step is the result."
            )
        choose_by(job, own)


class Withheld(Ability):
    """`withhold`: what other stages measure by is not trained on here either."""

    fields = {
        "withhold": (
            Literal[True] | None,
            Field(
                None,
                description="Train on none of the sentences that `dev: unlabelled` holds out of "
                "the same text in other stages; vectors that those computed serve again.",
            ),
        )
    }
    before = ("HeldOut",)
    after = ("ImageRows",)

    def needs(self, stage: StageSpec) -> Mapping[Need, str]:
        """All sentences to hold some out of."""
        return dict.fromkeys((Need.SENTENCES, Need.ALL_ROWS), self.key)

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse a stage that holds out sentences of its own: it would do so twice."""
        evaluate = placed.spec.evaluate
        dev = evaluate.dev if evaluate else None
        if self.given(placed.spec) and getattr(dev, "unlabelled", False):
            text = "expected another 'evaluate.dev' beside 'withhold' than 'unlabelled', which "
            yield placed.at("withhold"), f"{text}holds out the same sentences. Remove 'withhold'."

    def read(self, stage: StageSpec, inputs: Inputs) -> None:
        """Leave them out."""
        from st_jtcse import data

        if isinstance(inputs.sentences, data.Sentences):
            inputs.sentences, _ = data.hold_out(inputs.sentences)
            inputs.hashes["train"] = inputs.sentences.sha256


def _or_start(taught: Taught, job: Job) -> Taught:
    """Return the teachers, without any the model that the stage starts from."""
    if taught.models:
        return taught
    return Taught([job.model], [1.0], taught.form)


def _can_hold_out(stage: StageSpec) -> bool:
    """Whether held-out sentences may choose a stage's checkpoint, and nothing else does."""
    evaluates = stage.args.get("eval_strategy") in ("steps", "epoch")
    chooses = stage.evaluate is not None and stage.evaluate.dev is not None
    if stage.loss is None or stage.model.scores_pairs or not evaluates or chooses:
        return False
    # Teachers that are partly live are a fault that the checks tell.
    all_kept = all(teacher.cache for teacher in Teaching().of(stage))
    return stage.has_sentences and all_kept and not is_streamed(stage)
