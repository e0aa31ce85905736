"""The figures of a table: every row's score, and the means that its paper reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from st_jtcse.evaluation.jobs import Record
from st_jtcse.evaluation.suites import Suite

# The fifteen metrics of JTCSE's Table VI.
RETRIEVAL = tuple(f"{name}_at_{k}" for name in ("map", "mrr", "ndcg", "precision", "recall") for k in (1, 5, 10))


def suite_scores(suite: Suite, records: Mapping[str, Record]) -> dict[str, Any]:
    """Return a table as plain data; scores are in percent, None where a task has no result."""
    known = [(row, records.get(row.job)) for row in suite.rows]
    rows: list[dict[str, Any]] = [
        {
            "label": row.paper,
            "task": row.job,
            "metric": row.metric or (record.main_score if record else None),
            "score": _rounded(row.score(record)) if record else None,
            "reported": row.reported,
            "note": row.note,
        }
        for row, record in known
    ]
    retrieval = [(row, record) for row, record in known if row.metric in RETRIEVAL]
    finished = [(row, record) for row, record in known if record]
    return {
        "source": suite.source,
        "note": suite.note,
        "rows": rows,
        # The mean of tasks asked for one by one would mean nothing.
        "average": _mean([cells["score"] for cells in rows]) if suite.source else None,
        "reported_average": suite.average,
        "by_metric": {
            metric: _mean([row.score(record, metric) if record else None for row, record in retrieval])
            for metric in (RETRIEVAL if retrieval else ())
        },
        "aggregations": {row.paper: _aggregations(record) for row, record in finished if row.metric == "spearman_all"},
        "transfer": {row.paper: found for row, record in finished if (found := _transfer(record))},
    }


def _aggregations(record: Record) -> dict[str, Any]:
    """Return SentEval's three aggregations of an STS set, and the subsets' own correlations."""
    metrics = {
        name.removeprefix("spearman_"): _rounded(100 * value)
        for name, value in record.scores["test"]["default"].items()
        if name.startswith("spearman_")
    }
    return {**{kind: metrics.pop(kind, None) for kind in ("all", "mean", "wmean")}, "subsets": metrics}


def _transfer(record: Record) -> dict[str, float | None]:
    """Return the three figures of a transfer set; none for any other task."""
    metrics = record.scores.get("test", {}).get("default", {})
    if "dev_accuracy" not in metrics:
        return {}
    names = ("accuracy", "dev_accuracy", "f1")
    return {name: _rounded(100 * metrics[name]) if name in metrics else None for name in names}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _rounded(sum(known) / len(known)) if known and len(known) == len(values) else None


def _rounded(value: float | None) -> float | None:
    # Six digits: the tables show two, and means are taken of these.
    return None if value is None else round(value, 4)
