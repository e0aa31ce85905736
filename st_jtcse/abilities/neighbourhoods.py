"""Neighbours: teachers' vectors drawn towards the mean of their nearest sentences'."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from st_jtcse.abilities.teaching import taught_by
from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.blocks import Block, Sources
from st_jtcse.recipe.scale import Demand, Scale
from st_jtcse.recipe.yaml_source import Loc

if TYPE_CHECKING:
    from datasets import Dataset

    from st_jtcse import data
    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.recipe.schema import StageSpec
    from st_jtcse.training.job import Job
    from st_jtcse.training.stage_inputs import Inputs

_ANCHORS = "anchors"


class NeighboursSpec(Block):
    """How far a teacher's vectors are drawn towards the mean of their nearest sentences': topics,
    not wordings.
    """

    count: int = Field(10, ge=1, description="How many of the nearest training sentences to use.")
    weight: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None,
        description="How far to move each vector towards its neighbours' mean, from 0 to 1. null: "
        "set by the text, at most 0.5; the more the text has topics, the higher.",
    )
    anchors: Sources | None = Field(
        None,
        description="General sentences to train on beside your text; their teachers' vectors are "
        "not moved.",
    )
    anchor_share: float = Field(
        1 / 3,
        gt=0,
        lt=1,
        description="Share of the anchors among all rows; they are repeated until they reach it.",
    )


class Neighbourhoods(Ability):
    """`neighbours`: labels follow the topics of the text, while general sentences keep theirs."""

    fields = {
        "neighbours": (
            NeighboursSpec | None,
            Field(
                None,
                description="Draw the teachers' vectors towards their neighbours' mean; good for "
                "texts that have topics.",
            ),
        )
    }
    after = ("HeldOut", "JudgedPairs", "Teaching")
    data_names = (_ANCHORS,)

    def needs(self, stage: StageSpec) -> Mapping[Need, str]:
        """All vectors; anchors are texts."""
        found = {Need.ALL_VECTORS: self.key}
        if self.of(stage).anchors is not None:
            found[Need.TEXT] = f"{self.key}.{_ANCHORS}"
        return found

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse neighbours of vectors that there are not."""
        if self.given(placed.spec) and placed.lacks("teachers"):
            yield (
                placed.at(),
                "expected 'teachers' beside 'neighbours', found none. Name them, or remove "
                "'neighbours'.",
            )

    def expected_rows(self, stage: StageSpec, rows: int) -> int:
        """Count the anchors that are trained on beside the text."""
        own: NeighboursSpec = self.of(stage)
        if own.anchors is None:
            return rows
        return round(rows / (1 - own.anchor_share))

    def demands(self, job: Job, scale: Scale, texts: int) -> Iterator[Demand]:
        """The search, whose labels stay in memory, and the vectors of the anchors."""
        from st_jtcse.data.neighbours import compared, memory_of_means

        own: NeighboursSpec = self.of(job.stage)
        size, weighed = taught_by(job).size, own.weight is None
        # Each process sends the places and cosines that it finds to all others, 4 bytes each.
        found, others = 8.0 * own.count * texts, 1 - 1 / scale.processes
        held = 2.0 * size * texts
        yield Demand(
            "neighbours",
            "compare",
            compared(texts, scale.processes, weighed=weighed),
            lambda: searched_a_second(size, texts),
            wire=others * found,
            held=held,
            peak=memory_of_means(texts, size, own.count, weighed=weighed)
            + (others > 0) * found
            - held,
        )
        if _ANCHORS in job.inputs.read:
            anchors = len(job.inputs.read[_ANCHORS].dataset)
            yield taught_by(job).demand("anchors' vectors", job, scale, anchors)

    def read(self, stage: StageSpec, inputs: Inputs) -> None:
        """Read the anchors, and refuse what the search lacks before a teacher embeds anything."""
        from st_jtcse import data

        if inputs.sentences is not None:
            data.needs_index(len(inputs.sentences.dataset))
        sources = self.of(stage).anchors
        if sources is not None:
            inputs.read_beside(_ANCHORS, sources)

    def ahead(self, job: Job) -> Iterator[Callable[[], Any]]:
        """The vectors of the anchors; means are kept nowhere."""
        if _ANCHORS in job.inputs.read:
            yield lambda: self._labelled_anchors(job)

    def prepare(self, job: Job) -> None:
        """Draw the labels towards their neighbours, and add the anchors with labels of theirs."""
        from st_jtcse.data.neighbours import with_neighbourhood_means

        own: NeighboursSpec = self.of(job.stage)
        drawn, weight = with_neighbourhood_means(job.dataset, own.count, own.weight)
        job.dataset, job.record["neighbours_weight"] = drawn, weight
        if _ANCHORS in job.inputs.read:
            self._add_anchors(job, own.anchor_share)

    def _labelled_anchors(self, job: Job) -> Dataset:
        anchors: data.Sentences = job.inputs.read[_ANCHORS]
        sentences = job.columns_of(anchors)
        return taught_by(job).labelled(sentences, anchors.sha256, job.cache_dir)

    def _add_anchors(self, job: Job, share: float) -> None:
        import numpy as np
        from datasets import concatenate_datasets

        labelled = self._labelled_anchors(job)
        count = round(len(job.dataset) * share / (1 - share))
        rows = np.arange(count) % len(labelled)
        job.dataset = concatenate_datasets([job.dataset, labelled.select(rows)])


def searched_a_second(size: int, texts: int) -> float:
    """Return how many pairs of vectors of so many components are compared a second in a search
    among so many texts; UserError where that needs faiss, which is missing.
    """
    from st_jtcse import data
    from st_jtcse.data.neighbours import trial_search
    from st_jtcse.training.rates import rate_of

    return rate_of(*trial_search(size, indexed=data.needs_index(texts)))
