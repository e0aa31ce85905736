"""Streaming: data sets that are read while they are trained on, without an end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.yaml_source import Loc

if TYPE_CHECKING:
    from st_jtcse import data
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.job import Job


class Streaming(Ability):
    """`data.streaming`: the rows need fit neither memory nor disk."""

    block = "data"
    fields = {
        "streaming": (
            bool,
            Field(
                False,
                description="Read the data sets of `train` while training, without an end, so that "
                "they need fit neither memory nor disk; sentences are mixed in a buffer of 10,000. "
                "`max_steps` says when to stop.",
            ),
        )
    }

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse files, a training without an end, and what needs all sentences before it."""
        stage = placed.spec
        if stage.data is None or not is_streamed(stage):
            return
        loc = placed.where("data", "streaming")
        if any(source.file for source in stage.data.sources):
            yield (
                loc[:-1],
                "expected a 'dataset' in 'train' beside 'streaming', found a file. Remove "
                "'streaming'.",
            )
            return
        if int(stage.args.get("max_steps", -1)) <= 0:
            yield (
                loc,
                "expected a number of steps beside 'streaming', whose end is not known, found "
                "none. Give max_steps in 'args'.",
            )
        found = [needs[Need.ALL_ROWS] for needs in placed.needs if Need.ALL_ROWS in needs]
        for key in ("batch_sampler", "train_sampling_strategy"):
            if stage.args.get(key):
                found.append(f"args.{key}")
        for key in found:
            yield (
                loc,
                f"expected all sentences before training for {key}, found 'streaming'. Remove one.",
            )

    def load(self, stage: StageSpec, cache_dir: Path | None) -> data.Sentences:
        """Read the first sentences alone."""
        from st_jtcse import data
        from st_jtcse.recipe.sources import source_of

        sources = stage.data.sources if stage.data is not None else []
        return data.load_sentences([source_of(source) for source in sources], streaming=True)

    def prepare(self, job: Job) -> None:
        """Read all of them in an order of the seed."""
        job.stream = job.sentences.stream(job.seed)

    def arguments(self, stage: StageSpec) -> Mapping[str, Any]:
        """Let every process read, and take its own rows, in the order in which they come."""
        found: dict[str, Any] = {"batch_sampler": "batch_sampler"}
        if "accelerator_config" not in stage.args:
            found["accelerator_config"] = {"dispatch_batches": False}
        return found


def is_streamed(stage: StageSpec) -> bool:
    """Whether a stage reads its rows while it trains on them."""
    return Streaming().given(stage)
