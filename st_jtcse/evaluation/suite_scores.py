"""The figures of a table: every row's score, and the means that its paper reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from st_jtcse.evaluation.jobs import Record
from st_jtcse.evaluation.suites import Row, Suite

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
    finished = [(row, record) for row, record in known if record is not None]
    return {
        "source": suite.source,
        "note": suite.note,
        "rows": rows,
        # The mean of tasks asked for one by one would mean nothing.
        "average": _mean([cells["score"] for cells in rows]) if suite.source else None,
        "reported_average": suite.average,
        "by_metric": _retrieval([(row, record) for row, record in known if row.metric in RETRIEVAL]),
        "aggregations": {row.paper: _aggregations(record) for row, record in finished if row.metric == "spearman_all"},
        "transfer": {row.paper: found for row, record in finished if (found := _transfer(record))},
    }


def _retrieval(known: Sequence[tuple[Row, Record | None]]) -> dict[str, float | None]:
    """Return the means of all fifteen metrics."""
    if not known:
        return {}
    return {
        metric: _mean([row.score(record, metric) if record else None for row, record in known]) for metric in RETRIEVAL
    }


def _aggregations(record: Record) -> dict[str, Any]:
    """Return SentEval's three aggregations of an STS set, and the subsets' own correlations."""
    metrics = {
        name.removeprefix("spearman_"): 100 * value
        for name, value in record.scores["test"]["default"].items()
        if name.startswith("spearman_")
    }
    three = {kind: _rounded(metrics.pop(kind, None)) for kind in ("all", "mean", "wmean")}
    return {**three, "subsets": {name: _rounded(value) for name, value in metrics.items()}}


def _transfer(record: Record) -> dict[str, float | None]:
    """Return the three figures of a transfer set; none for any other task."""
    metrics = record.scores.get("test", {}).get("default", {})
    if "dev_accuracy" not in metrics:
        return {}
    return {name: _rounded(100 * metrics[name]) if name in metrics else None for name in _TRANSFER}


_TRANSFER = ("accuracy", "dev_accuracy", "f1")


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _rounded(sum(known) / len(known)) if known and len(known) == len(values) else None


def _rounded(value: float | None) -> float | None:
    # Six digits: the tables show two, and means are taken of these.
    return None if value is None else round(value, 4)
