"""Results as tables, the papers' figures beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from st_jtcse.evaluation.record import Record
from st_jtcse.evaluation.selection import Line, Section

OURS = "this model"
MEAN = "mean"
# The fifteen metrics of JTCSE's Table VI.
RETRIEVAL = tuple(f"{name}_at_{k}" for name in ("map", "mrr", "ndcg", "precision", "recall") for k in (1, 5, 10))


def section(found: Section, records: Mapping[str, Record]) -> dict[str, Any]:
    """Return a table as plain data; scores are in percent, None where a task has no result.

    Args:
        found: What to show.
        records: Finished tasks by key.
    """
    rows: list[dict[str, Any]] = []
    for line in found.lines:
        record = records.get(line.job)
        rows.append(
            {
                "label": line.label,
                "task": line.job,
                "metric": line.metric or (record.main_score if record else None),
                "score": _rounded(line.score(record)) if record else None,
                "reported": line.reported,
                "note": line.note,
            }
        )
    return {
        "source": found.source,
        "note": found.note,
        "rows": rows,
        # The mean of tasks asked for one by one would mean nothing.
        "average": _mean([row["score"] for row in rows]) if found.source else None,
        "reported_average": found.average,
        "by_metric": _retrieval(found.lines, records),
        "aggregations": _aggregations(found.lines, records),
        "transfer": _transfer(found.lines, records),
    }


def columns(table: Mapping[str, Any]) -> list[str]:
    """Return the headings of a table: ours, then the papers' models of its rows."""
    reported = dict.fromkeys(name for row in table["rows"] for name in row["reported"])
    return ["task", "metric", OURS, *reported]


def cells(table: Mapping[str, Any]) -> list[list[str]]:
    """Return the cells of a table under :func:`columns`, the mean last."""
    names = columns(table)[3:]
    rows = [
        [
            row["label"],
            row["metric"] or "",
            number(row["score"]),
            *(number(row["reported"].get(name)) for name in names),
        ]
        for row in table["rows"]
    ]
    if table["source"]:
        reported = table["reported_average"]
        rows.append([MEAN, "", *map(number, (table["average"], *map(reported.get, names)))])
    return rows


def number(value: float | None) -> str:
    """Write a figure, or what stands for a missing one."""
    return "-" if value is None else f"{value:.2f}"


def markdown(data: Mapping[str, Any]) -> str:
    """Write results as Markdown.

    Args:
        data: What `results.json` holds.
    """
    model = data["model"]
    parts = [
        f"# Evaluation of {model['name']}",
        f"{model['parameters'] / 1e6:.1f}M parameters, {model['dimension']} components, inputs of up to "
        f"{model['max_seq_length']} tokens; SHA-256 `{model['sha256']}`. Scores are in percent.",
    ]
    for name, table in data["suites"].items():
        parts += _suite(name, table)
    if data["missing"]:
        parts += ["## Without a result", "\n".join(f"- {key}: {reason}" for key, reason in data["missing"].items())]
    versions = ", ".join(f"{library} {version}" for library, version in data["versions"].items())
    parts.append(f"Versions: {versions}.")
    return "\n\n".join(parts) + "\n"


def _suite(name: str, table: Mapping[str, Any]) -> list[str]:
    parts = [f"## {name}"]
    if table["source"]:
        parts.append(f"Beside the figures of {table['source']}.")
    parts.append(_table(columns(table), cells(table), words=2))
    others = {key: value for key, value in table["reported_average"].items() if key not in columns(table)}
    if others:
        parts.append(
            "Further means reported: " + ", ".join(f"{key} {value:.2f}" for key, value in others.items()) + "."
        )
    if table["by_metric"]:
        rows = [[metric, number(value)] for metric, value in table["by_metric"].items()]
        parts += ["Means over the tasks by metric:", _table(["metric", OURS], rows)]
    if table["aggregations"]:
        heading = ["set", "all", "mean", "weighted mean", "subsets"]
        rows = [
            [label, *(number(found[kind]) for kind in ("all", "mean", "wmean")), _listed(found["subsets"])]
            for label, found in table["aggregations"].items()
        ]
        parts += ["Spearman by SentEval's aggregations:", _table(heading, rows)]
    if table["transfer"]:
        rows = [[label, *map(number, found.values())] for label, found in table["transfer"].items()]
        parts += ["Transfer:", _table(["set", "accuracy", "accuracy where C was chosen", "F1"], rows)]
    notes = [f"- {row['label']}: {row['note']}" for row in table["rows"] if row["note"]]
    notes = ([f"- {table['note']}"] if table["note"] else []) + notes
    return [*parts, "\n".join(notes)] if notes else parts


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    lines = [headings, ["---"] * words + ["---:"] * (len(headings) - words), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _listed(subsets: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in subsets.items())


def _retrieval(lines: Sequence[Line], records: Mapping[str, Record]) -> dict[str, float | None]:
    retrieval = [line for line in lines if line.metric in RETRIEVAL]
    if not retrieval:
        return {}
    scores: dict[str, list[float | None]] = {metric: [] for metric in RETRIEVAL}
    for line in retrieval:
        record = records.get(line.job)
        for metric, values in scores.items():
            values.append(line.score(record, metric) if record else None)
    return {metric: _mean(values) for metric, values in scores.items()}


def _aggregations(lines: Sequence[Line], records: Mapping[str, Record]) -> dict[str, Any]:
    found = {}
    for line in lines:
        record = records.get(line.job)
        if record is None or line.metric != "spearman_all":
            continue
        metrics = {
            name.removeprefix("spearman_"): 100 * value
            for name, value in record.scores["test"]["default"].items()
            if name.startswith("spearman_")
        }
        three = {kind: _rounded(metrics.pop(kind, None)) for kind in ("all", "mean", "wmean")}
        found[line.label] = {**three, "subsets": {name: _rounded(value) for name, value in metrics.items()}}
    return found


def _transfer(lines: Sequence[Line], records: Mapping[str, Record]) -> dict[str, Any]:
    found = {}
    for line in lines:
        record = records.get(line.job)
        metrics = record.scores["test"].get("default", {}) if record and "test" in record.scores else {}
        if "dev_accuracy" in metrics:
            three = {name: metrics.get(name) for name in ("accuracy", "dev_accuracy", "f1")}
            found[line.label] = {
                name: None if value is None else _rounded(100 * value) for name, value in three.items()
            }
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _rounded(sum(known) / len(known)) if known and len(known) == len(values) else None


def _rounded(value: float | None) -> float | None:
    # Six digits: the tables show two, and means are taken of these.
    return None if value is None else round(value, 4)
