"""A set of one's own once it is read, and as a task of `st-eval`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sentence_transformers import SentenceTransformer

from st_jtcse.data.pairs import Pairs
from st_jtcse.evaluation.jobs import Context
from st_jtcse.evaluation.unique_texts import Vectors, encode_apart, encode_columns
from st_jtcse.modules.closed_forms import unit_rows
from st_jtcse.records import TaskRecord

# From indices of a set's items, (n,) int64, to the score on those: 0 to 1, or a correlation.
Statistic = Callable[[npt.NDArray[np.int64]], float]
# From the vectors of a set's columns to the statistic; they are at length 1 but for graded pairs.
Measure = Callable[..., Statistic]


@dataclass(frozen=True)
class OwnSet:
    """A set that was read.

    Args:
        name: What to call it.
        metric: What its statistic is, as in the name of an evaluator's metric.
        columns: Columns of texts, or of images, to encode.
        items: How many items the statistic is over.
        sha256: Hash of its rows.
        measure: From the columns' vectors to the statistic; unit vectors but for graded pairs.
        pairs: Graded pairs as they were read; None of a set of another kind.
    """

    name: str
    metric: str
    columns: tuple[Sequence[Any], ...]
    items: int
    sha256: str
    measure: Measure
    pairs: Pairs | None = None

    def statistic(self, model: SentenceTransformer, batch_size: int = 64) -> Statistic:
        """Return a model's statistic; raises UserError where its embeddings cannot be used."""
        return self.measure(*self.vectors(model, batch_size))

    def vectors(self, model: SentenceTransformer, batch_size: int = 64) -> list[Vectors]:
        """Return the vectors of the columns, as the measure takes them."""
        if self.pairs is not None:
            # Each side by itself, as in Sentence-Transformers' evaluator of a training: where many
            # cosines are equal, the last bit of an embedding decides their order.
            return encode_apart(model, self.columns, batch_size)
        return [unit_rows(vectors) for vectors in encode_columns(model, self.columns, batch_size)]

    def score(self, statistic: Statistic) -> float:
        """Return the statistic over all items."""
        return statistic(np.arange(self.items))

    @property
    def rows(self) -> dict[str, str]:
        """What tables show of it: metrics by label."""
        return {self.name: self.metric}

    @property
    def note(self) -> str | None:
        """What to know of its scores."""
        return None

    def job(self, source: str) -> OwnSetJob:
        """Return it as a task of `st-eval`; `source` is what to call its file."""
        return OwnSetJob(self, source)


class OwnSetJob:
    """A set of one's own as a task of `st-eval`; it keeps the statistics that are defined, by
    model, for a verdict.
    """

    def __init__(self, own: OwnSet, source: str) -> None:
        self.own, self.data, self._source = own, own.sha256, source
        self.statistics: dict[str, dict[str, Statistic]] = {}

    def measured(self, context: Context) -> dict[str, Statistic]:
        """Return the model's statistics by metric."""
        model = context.evaluated.model
        return {self.own.metric: self.own.statistic(model, context.batch_size)}

    def compared(self, base: str, model: str) -> dict[str, tuple[OwnSet, Statistic, Statistic]]:
        """Return by name what a verdict on a model beside another is of; both were measured."""
        before, after = (self.statistics[name][self.own.metric] for name in (base, model))
        return {self.own.name: (self.own, before, after)}

    def run(
        self, context: Context, earlier: TaskRecord | None, keep: Callable[[TaskRecord], object]
    ) -> TaskRecord:
        """Measure the model, also where an earlier run did: the verdict needs more than
        its score.
        """
        began = time.perf_counter()
        statistics = self.measured(context)
        scores = {metric: self.own.score(found) for metric, found in statistics.items()}
        metrics = {metric: score for metric, score in scores.items() if math.isfinite(score)}
        if self.own.metric in metrics:
            self.statistics[context.evaluated.name] = statistics
        seconds = round(time.perf_counter() - began, 1)
        return TaskRecord(
            source=self._source,
            sha256=self.data,
            main_score=self.own.metric,
            scores={"test": {"default": metrics}},
            seconds=seconds,
        )
