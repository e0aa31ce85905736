"""A contest: which of several models is a stage's result, by `evaluate` and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from st_jtcse.recipe.blocks import DEV

if TYPE_CHECKING:
    from datasets import Dataset

    from st_jtcse.abilities.neighbourhoods import NeighboursSpec
    from st_jtcse.abilities.teaching import Taught
    from st_jtcse.evaluation.measured_sets import OwnSet
    from st_jtcse.evaluation.unique_texts import Vectors
    from st_jtcse.training.job import Job
    from st_jtcse.training.limits import Limits
    from st_jtcse.training.stage_inputs import Rows

# Training sentences that neighbours are found in; more would not change what is agreed on.
SAMPLE = 20_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """A candidate and its scores x 100.

    Args:
        name: What the record and the log call it.
        dev: Its score on the set that chooses.
        general: Its scores on general sets.
        share: How much of it is left after mixing with the start.
    """

    name: str
    dev: float
    general: Mapping[str, float] = field(default_factory=dict)
    share: float = 1.0

    def keeps(self, start: Entry, limits: Limits) -> bool:
        """Whether no general set has lost more than is allowed."""
        return not limits.beyond(start.general, self.general)


def agreement(
    job: Job, start: Vectors, held: Sequence[Vectors], texts: Sequence[Vectors] | None = None
) -> None:
    """Give a stage the set that chooses among candidates without labels, an :func:`agreed_set`.

    Args:
        job: The stage's, with sentences that are held out.
        start: The start's unit vectors of some training sentences.
        held: Each candidate's unit vectors of the held-out sentences, the start's first.
        texts: Likewise of training sentences, in which neighbours are found; None: they are found
            in the held-out ones.
    """
    from st_jtcse.evaluation.unlabelled import agreed_set

    sentences = job.inputs.kept_out
    assert sentences is not None
    texts_held = sentences.dataset["sentence"][:]
    choose_by(job, agreed_set(texts_held, sentences.sha256, start, held, texts))


def choose_by(job: Job, own: OwnSet) -> None:
    """Give a stage a set of its held-out sentences as the one that chooses; what is encoded of them
    already is not encoded again.
    """
    import numpy as np

    from st_jtcse.data.encoded import kept_vectors
    from st_jtcse.evaluation.unlabelled import RememberingEvaluator
    from st_jtcse.modules.closed_forms import unit_rows

    sentences = job.inputs.kept_out
    assert sentences is not None

    def recall(model: Any) -> Vectors | None:
        found = kept_vectors(model, sentences.dataset, sentences.sha256, job.cache_dir)
        if found is None:
            return None
        return unit_rows(found[:].astype(np.float64)).astype(np.float32)

    job.inputs = replace(
        job.inputs,
        sets=job.inputs.sets | {DEV: own},
        evaluators={DEV: RememberingEvaluator(own, DEV, recall)} | job.inputs.evaluators,
    )


def taught_ahead(job: Job, taught: Callable[[], Taught]) -> Iterator[Callable[[], Any]]:
    """Yield what computes the vectors of :func:`taught_set` ahead of a run, a text each."""
    for part in (job.inputs.sentences, job.inputs.kept_out):
        if part is not None:
            yield partial(_labelled, job, taught, part)


def _labelled(job: Job, taught: Callable[[], Taught], part: Rows) -> Dataset:
    return taught().labelled(part.dataset, part.sha256, job.cache_dir)


def taught_set(job: Job, taught: Taught, near: NeighboursSpec) -> tuple[OwnSet, float]:
    """Return the set whose score is how many neighbours among the held-out sentences a model shares
    with teachers, and how far these are drawn to the topics of the text.

    Args:
        job: The stage's, with sentences that are held out.
        taught: The teachers, whose vectors are drawn to their neighbours in the training text.
        near: How many neighbours these are, and how far vectors are drawn.
    """
    import numpy as np

    from st_jtcse.data.neighbours import neighbourhood_means, topic_weight
    from st_jtcse.evaluation.unlabelled import neighbours_set

    held_out = job.inputs.kept_out
    assert held_out is not None
    text, held = (
        taught.labelled(part.dataset, part.sha256, job.cache_dir).with_format("numpy")["label"][:]
        for part in (job.sentences, held_out)
    )
    weight = topic_weight(text, near.count) if near.weight is None else near.weight
    reference = neighbourhood_means(
        np.asarray(held), near.count, weight, np.asarray(text), together=True
    )
    texts = held_out.dataset["sentence"][:]
    return neighbours_set(texts, reference, held_out.sha256), weight


def winner(entries: Sequence[Entry], limits: Limits) -> int:
    """Return the position of the best candidate on dev among those that keep what is general.

    The first entry is the start. Of equals the first wins, so they stand in the order of their
    costs.
    """
    start = entries[0]
    kept = [at for at, entry in enumerate(entries) if entry.keeps(start, limits)]
    return max(kept, key=lambda at: (entries[at].dev, -at))


def told(stage: str, entries: Sequence[Entry], chosen: int, limits: Limits) -> Any:
    """Return what a record says of a contest, and log it."""
    for at, entry in enumerate(entries):
        general = "".join(f", {name} {score:.2f}" for name, score in entry.general.items())
        beyond = ", ".join(limits.beyond(entries[0].general, entry.general))
        kept = f" (loses too much of {beyond})" if beyond else ""
        best = " <- the result" if at == chosen else ""
        logger.info("%s: %s: %s %.2f%s%s%s", stage, entry.name, DEV, entry.dev, general, kept, best)
    listed = [
        {
            "name": entry.name,
            "dev": round(entry.dev, 4),
            "general": {name: round(score, 4) for name, score in entry.general.items()},
            "share": entry.share,
        }
        for entry in entries
    ]
    return {"entries": listed, "chosen": entries[chosen].name}
