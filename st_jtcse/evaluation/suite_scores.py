"""The figures of a table: every line's score, and the means that its paper reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from st_jtcse.evaluation.jobs import Record
from st_jtcse.evaluation.selection import Line, Section

# The fifteen metrics of JTCSE's Table VI.
RETRIEVAL = tuple(f"{name}_at_{k}" for name in ("map", "mrr", "ndcg", "precision", "recall") for k in (1, 5, 10))


def section_scores(section: Section, records: Mapping[str, Record]) -> dict[str, Any]:
    """Return a table as plain data; scores are in percent, None where a task has no result.

    Args:
        section: What to show.
        records: Finished tasks by key.
    """
    known = [(line, records.get(line.job)) for line in section.lines]
    rows: list[dict[str, Any]] = [
        {
            "label": line.label,
            "task": line.job,
            "metric": line.metric or (record.main_score if record else None),
            "score": _rounded(line.score(record)) if record else None,
            "reported": line.reported,
            "note": line.note,
        }
        for line, record in known
    ]
    finished = [(line, record) for line, record in known if record is not None]
    return {
        "source": section.source,
        "note": section.note,
        "rows": rows,
        # The mean of tasks asked for one by one would mean nothing.
        "average": _mean([row["score"] for row in rows]) if section.source else None,
        "reported_average": section.average,
        "by_metric": _retrieval([(line, record) for line, record in known if line.metric in RETRIEVAL]),
        "aggregations": {
            line.label: _aggregations(record) for line, record in finished if line.metric == "spearman_all"
        },
        "transfer": {line.label: found for line, record in finished if (found := _transfer(record))},
    }


def _retrieval(known: Sequence[tuple[Line, Record | None]]) -> dict[str, float | None]:
    """Return the means of all fifteen metrics."""
    if not known:
        return {}
    return {
        metric: _mean([line.score(record, metric) if record else None for line, record in known])
        for metric in RETRIEVAL
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
