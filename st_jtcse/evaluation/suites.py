"""Tables of tasks, read from YAML files, and the figures of a model in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field, model_validator

from st_jtcse.records import (
    Aggregations,
    SuiteRow,
    SuiteScores,
    TaskRecord,
    TransferScores,
)

# The fifteen metrics of JTCSE's Table VI.
RETRIEVAL = tuple(
    f"{name}_at_{k}" for name in ("map", "mrr", "ndcg", "precision", "recall") for k in (1, 5, 10)
)
# The figures of a search over a corpus of one's own; the first is the main one.
SEARCHED = ("ndcg@10", "map@100", "recall@10", "recall@100", "mrr@10")
# One figure a model, in percent.
Figures = dict[str, Annotated[float, Field(ge=-100, le=100)]]


class Row(BaseModel, extra="forbid", frozen=True):
    """One row of a table: a paper's, or a task that was asked for."""

    paper: str = Field(description="How the paper calls it.")
    task: str = Field(description="The protocol's name of the task, or a file's.")
    protocol: str = Field("mteb", description="Whose task it is.")
    metric: str | None = Field(
        None, description="Metric, instead of the suite's; None for MTEB's main score."
    )
    subsets: tuple[str, ...] | None = Field(
        None, min_length=1, description="Subsets; None for all of the task's."
    )
    splits: tuple[str, ...] | None = Field(
        None, min_length=1, description="Splits, instead of the suite's."
    )
    pairs: str | None = Field(
        None, description="SentEval set whose pairs stand in for the task's own."
    )
    samples: int | None = Field(None, ge=1, description="Rows of these splits and subsets.")
    reported: Figures = Field(default_factory=dict, description="What the paper reports.")
    note: str | None = Field(None, description="What to know when comparing.")

    @property
    def job(self) -> str:
        """Key of what is run for this row, which other rows may share."""
        return f"{self.protocol}/{self.task}" + (
            f" with the pairs of {self.pairs}" if self.pairs else ""
        )

    def score(self, record: TaskRecord, metric: str | None = None) -> float | None:
        """Return a metric in percent: the mean over the row's splits of the mean over its
        subsets.
        """
        metric = metric or self.metric or record.main_score
        means = []
        for split in self.splits or record.scores:
            subsets = record.scores.get(split, {})
            values = [subsets.get(subset, {}).get(metric) for subset in self.subsets or subsets]
            known = [value for value in values if value is not None]
            if not values or len(known) < len(values):
                return None
            means.append(sum(known) / len(known))
        return 100 * sum(means) / len(means)


class Suite(BaseModel, extra="forbid", frozen=True):
    """One table: a paper's, or the tasks that were asked for."""

    name: str = Field("", description="The key of the file.")
    source: str | None = Field(None, description="Paper and table.")
    protocol: str = Field("mteb", description="Protocol of the rows.")
    note: str | None = Field(None, description="What to know when comparing.")
    metric: str | None = Field(None, description="Metric of every row that names none.")
    splits: tuple[str, ...] = Field((), description="Splits of every row that names none.")
    average: Figures = Field(
        default_factory=dict, description="What the paper reports as the mean."
    )
    reported_by_metric: dict[str, Figures] = Field(
        default_factory=dict, description="Means over the tasks by metric."
    )
    instead: str | None = Field(
        None, description="The suite to run where this one's tasks are not known."
    )
    rows: tuple[Row, ...]

    @model_validator(mode="before")
    @classmethod
    def _give_rows_the_suite_s(cls, data: dict[str, Any]) -> dict[str, Any]:
        shared = {key: data[key] for key in ("protocol", "metric", "splits") if key in data}
        return {**data, "rows": [shared | row for row in data["rows"]]}

    @model_validator(mode="after")
    def _whole(self) -> Suite:
        if not self.rows and self.instead is None:
            raise ValueError("a suite needs rows, or the name of the suite to run instead")
        for row in self.rows if self.source else ():
            if row.metric is None or (row.protocol == "mteb" and not row.splits):
                raise ValueError(f"{row.paper} needs a metric and splits")
        return self


def read_suites(file: Path) -> dict[str, Suite]:
    """Return the suites of a YAML file by name, in its order."""
    # libyaml's parser where PyYAML was built with it: the same data in a fraction of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data = yaml.load(file.read_text(encoding="utf-8"), Loader=loader)
    return {name: Suite.model_validate({**found, "name": name}) for name, found in data.items()}


def suite_scores(suite: Suite, records: Mapping[str, TaskRecord]) -> SuiteScores:
    """Return a table and its paper's means; scores are in percent, None where a task has no
    result.
    """
    known = [(row, records.get(row.job)) for row in suite.rows]
    rows = [_row(row, record) for row, record in known]
    retrieval = [(row, record) for row, record in known if row.metric in RETRIEVAL]
    finished = [(row, record) for row, record in known if record]
    return SuiteScores(
        source=suite.source,
        note=suite.note,
        rows=rows,
        # The mean of tasks asked for one by one would mean nothing.
        average=_mean([row.score for row in rows]) if suite.source else None,
        reported_average=suite.average,
        by_metric={
            metric: _mean(
                [row.score(record, metric) if record else None for row, record in retrieval]
            )
            for metric in (RETRIEVAL if retrieval else ())
        },
        aggregations={
            row.paper: _aggregations(record)
            for row, record in finished
            if row.metric == "spearman_all"
        },
        transfer={row.paper: found for row, record in finished if (found := _transfer(record))},
        search={
            row.paper: _search(row, record) for row, record in finished if _search(row, record)
        },
    )


def _row(row: Row, record: TaskRecord | None) -> SuiteRow:
    return SuiteRow(
        label=row.paper,
        task=row.job,
        metric=row.metric or (record.main_score if record else None),
        score=_rounded(row.score(record)) if record else None,
        reported=row.reported,
        note=row.note,
    )


def _aggregations(record: TaskRecord) -> Aggregations:
    """Return SentEval's three aggregations of an STS set, and the subsets' own correlations."""
    metrics = {
        name.removeprefix("spearman_"): round(100 * value, 4)
        for name, value in record.scores.get("test", {}).get("default", {}).items()
        if name.startswith("spearman_")
    }
    three = {kind: metrics.pop(kind, None) for kind in ("all", "mean", "wmean")}
    return Aggregations(**three, subsets=metrics)


def _transfer(record: TaskRecord) -> TransferScores | None:
    """Return the three figures of a transfer set; None for any other task."""
    metrics = record.scores.get("test", {}).get("default", {})
    if "dev_accuracy" not in metrics:
        return None
    names = ("accuracy", "dev_accuracy", "f1")
    known = {name: round(100 * metrics[name], 4) for name in names if name in metrics}
    return TransferScores(**{name: known.get(name) for name in names})


def _search(row: Row, record: TaskRecord) -> dict[str, float]:
    """Return the figures of a search over a corpus; none of any other task."""
    metrics = record.scores.get("test", {}).get("default", {})
    # One's own sets say by the metric what was searched by: the model, BM25 or both.
    kind = (row.metric or "").removesuffix(SEARCHED[0])
    if row.protocol != "data" or any(f"{kind}{name}" not in metrics for name in SEARCHED):
        return {}
    return {name: round(100 * metrics[f"{kind}{name}"], 4) for name in SEARCHED}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if known and len(known) == len(values):
        return _rounded(sum(known) / len(known))
    return None


def _rounded(value: float | None) -> float | None:
    # Six digits: the tables show two, and means are taken of these.
    return None if value is None else round(value, 4)
