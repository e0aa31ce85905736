"""Watched purposes: what a stage's model is not meant for is measured too, without labels."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from st_jtcse.recipe.ability import Ability, Need

if TYPE_CHECKING:
    from datasets import Dataset

    from st_jtcse.evaluation.measured_sets import OwnSet
    from st_jtcse.records import StageRecord
    from st_jtcse.training.job import Job

logger = logging.getLogger(__name__)

SEARCH, TOPICS = "known_items", "neighbourhoods"
# What each set is about, and the purpose that it stands for.
ABOUT = {
    SEARCH: ("search", "held-out passages are found by queries made of them"),
    TOPICS: ("topics", "neighbourhoods of the start, drawn together, are kept"),
}
# Points that the other purpose may lose before it is told as a loss.
MOST = 1.0
LOSES, KEEPS = "loses", "keeps"
# Few: start, result and the model as shipped encode them all.
_PASSAGES, _QUERIES = 400, 80
_NEIGHBOURS, _WEIGHT = 10, 0.5
_BATCH = 32


class Watched(Ability):
    """`watched`: sets made of the stage's text, on which start and result are scored."""

    fields = {
        "watched": (
            Annotated[list[Literal["search", "topics"]], Field(min_length=1)] | None,
            Field(
                None,
                description="Purposes to measure start and result by, without labels: search "
                "(known_items: held-out passages are found by queries made of them) and topics "
                "(neighbourhoods: the start's own, drawn together, are kept). A loss of more than "
                "a point is told.",
            ),
        )
    }
    needing = (Need.ROWS, Need.TEXT, Need.ALL_ROWS)
    data_names = (SEARCH, TOPICS)
    after = ("HeldOut",)

    def begin(self, job: Job) -> None:
        """Make the sets."""
        from st_jtcse.training.stage_inputs import evaluator_of

        inputs = job.inputs
        if job.small or inputs.sentences is None:
            return
        made: dict[str, OwnSet] = {}
        if "search" in self.of(job.stage) and (own := _search(job)) is not None:
            made[SEARCH] = own
        if "topics" in self.of(job.stage):
            made[TOPICS] = _topics(job.model, _texts(job))
        job.inputs = replace(
            inputs,
            sets=inputs.sets | made,
            hashes=inputs.hashes | {name: own.sha256 for name, own in made.items()},
            evaluators=inputs.evaluators
            | {name: evaluator_of(job.stage, name, own) for name, own in made.items()},
        )

    def saved(self, job: Job, found: Mapping[str, Any]) -> None:
        """Say what the other purpose loses."""
        for told in watched_lines(job.stage.name, found["spearman_start"], found["spearman"]):
            if LOSES in told:
                logger.warning("%s", told)

    def ending(self, record: StageRecord) -> list[tuple[str, str]]:
        """Say how each purpose that is watched does."""
        told = watched_lines(record.name, record.spearman_start, record.spearman)
        return [(line, "worse" if LOSES in line else "equal") for line in told]


def watched_lines(stage: str, before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    """Say how a stage's start and its result do for each purpose that is watched."""
    told = []
    for name, (purpose, about) in ABOUT.items():
        if name not in before or name not in after:
            continue
        change = after[name] - before[name]
        word = LOSES if change < -MOST else KEEPS
        told.append(f"{stage} {word} {purpose}: {before[name]:.2f} -> {after[name]:.2f} ({about})")
    return told


def _texts(job: Job) -> list[str]:
    """Return some texts, those that are held out first."""
    out = [] if job.inputs.kept_out is None else _some(job.inputs.kept_out.dataset, _QUERIES)
    others = _some(job.sentences.dataset, _PASSAGES)
    return list(dict.fromkeys([*out, *others]))


def _some(dataset: Dataset, most: int) -> list[str]:
    step = max(1, -(-len(dataset) // most))
    return list(dict.fromkeys(dataset["sentence"][::step]))


def _search(job: Job) -> OwnSet | None:
    """Return the search of passages by queries that are made of the held-out ones, if there are
    any.
    """
    from st_jtcse.data.known_items import known_items, passages_of
    from st_jtcse.evaluation.searching import search_of

    own, headings = passages_of(job.sentences.rows, _PASSAGES)
    passages = own
    if job.inputs.kept_out is not None:
        own, headings = passages_of(job.inputs.kept_out.rows, _QUERIES)
        passages = list(dict.fromkeys([*own, *passages]))
    items = known_items(own, 0, _QUERIES, headings)
    if len(items.queries) < 2 or len(passages) < 2:
        return None
    return search_of(items.over(passages), SEARCH)


def _topics(model: Any, texts: list[str]) -> OwnSet:
    """Return the neighbourhoods of the start, each text drawn to its own."""
    import hashlib

    import numpy as np

    from st_jtcse.data.neighbours import neighbourhood_means
    from st_jtcse.evaluation.shared_encoding import encode_shared, found_together
    from st_jtcse.evaluation.unlabelled import neighbours_set
    from st_jtcse.modules.closed_forms import unit_rows

    encode = partial(model.encode, batch_size=_BATCH, show_progress_bar=False)
    found = found_together(model, partial(encode_shared, model, encode, texts, _BATCH))
    vectors = unit_rows(np.asarray(found, np.float32))
    reference = neighbourhood_means(vectors, _NEIGHBOURS, _WEIGHT)
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    own = neighbours_set(texts, reference, digest)
    return replace(own, name=TOPICS)
