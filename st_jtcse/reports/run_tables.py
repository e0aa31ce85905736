"""What a run would do, and what it came to, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from st_jtcse.reports.table import Table, millions, scale, shipped_rows


def plan_table(stages: Sequence[Any]) -> Table:
    """Return what a run would do."""
    rows = [
        [
            stage.name,
            stage.loss or "- (assembled)",
            millions(stage.parameters),
            "from the Hub" if stage.sentences is None else str(stage.sentences),
            "?" if stage.steps is None else str(stage.steps),
            ", ".join(stage.evaluated_on) or "-",
        ]
        for stage in stages
    ]
    columns = ["stage", "loss", "parameters", "sentences", "steps", "evaluated on"]
    return Table(columns, rows, "plan (nothing is written)", names=len(columns))


def results_table(results: Mapping[str, Any]) -> Table:
    """Return the start models as shipped, and every stage, where it started -> where it ended."""
    sets = list(dict.fromkeys(name for record in results["stages"] for name in record["spearman"]))
    rows = [[name, "", "", *scores] for name, *scores in shipped_rows(results, sets)]
    rows += [
        [
            f"{record['name']}, start kept" if record["steps"] and not record["best_step"] else record["name"],
            millions(record["parameters"]),
            str(record["steps"]),
            *(_change(record, name) for name in sets),
        ]
        for record in results["stages"]
    ]
    metrics = {name: metric for record in results["stages"] for name, metric in record.get("metrics", {}).items()}
    title = f"{results['recipe']}, seed {results['seed']}: {scale(sets, metrics)}, start -> trained"
    return Table(["stage", "parameters", "steps", *sets], rows, title)


def _change(record: Mapping[str, Any], name: str) -> str:
    start, end = record["spearman_start"].get(name), record["spearman"].get(name)
    return "" if end is None else f"{start:.2f} -> {end:.2f}"
