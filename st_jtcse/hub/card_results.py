"""The results that a saved model's folder holds, for its card: nothing else may be
claimed there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult

from st_jtcse.errors import UserError
from st_jtcse.evaluation.results import RESULTS
from st_jtcse.hashing import sha256
from st_jtcse.hub.model_form import read_json
from st_jtcse.reports.evaluation_report import suite_table
from st_jtcse.reports.markdown import as_text
from st_jtcse.reports.table import Table, number, scale, shipped_rows

# Written by st-train beside the weights, and the folder for st-eval's results there.
TRAINING_RECORD = "training_results.json"
EVALUATION = "evaluation"
# The Hub's name of the task, by what its metric measures.
_CLASSES, _RETRIEVAL = "text-classification", "text-retrieval"
_KINDS = {"accuracy": _CLASSES, "f1": _CLASSES, "map": _RETRIEVAL, "ndcg": _RETRIEVAL}


@dataclass(frozen=True)
class CardResults:
    """What a folder holds."""

    # For people, each with the path of its picture in the folder, if there is one
    tables: Sequence[tuple[Table, str | None]]
    figures: Sequence[EvalResult]  # the same for the Hub, as `model-index`
    name: str  # the model's name in `model-index`
    verdicts: Sequence[
        str
    ] = ()  # Markdown sentences: what the training came to, beside the model as shipped


def card_results(folder: Path) -> CardResults:
    """Read the results of a training and of an evaluation.

    Raises UserError where a file of results cannot be read, or is of other weights than those in
    the folder.
    """
    fault = "cannot be read; a card shows only what it holds, so restore it or delete it"
    training = read_json(folder / TRAINING_RECORD, fault) or {}
    evaluation = read_json(folder / EVALUATION / RESULTS, fault) or {
        "model": {"files": {}},
        "suites": {},
    }
    _of_these_weights(folder, TRAINING_RECORD, training.get("weights_sha256", {}))
    _of_these_weights(folder, f"{EVALUATION}/{RESULTS}", evaluation["model"]["files"])
    tables: list[tuple[Table, str | None]] = []
    figures: list[EvalResult] = []
    if scores := training.get("spearman"):
        tables.append((_training_table(training), None))
        figures += [
            _figure(name, name, _metric(training, name), score) for name, score in scores.items()
        ]
    for name, suite in evaluation["suites"].items():
        picture = f"{EVALUATION}/{name}.png"
        paper = training.get("reported_as")
        table = _own_and_reported(suite_table(name, suite, also=paper), paper)
        tables.append((table, picture if (folder / picture).is_file() else None))
        figures += [
            _figure(row["label"], row["task"], row["metric"], row["score"])
            for row in suite["rows"]
            if row["score"] is not None
        ]
    return CardResults(
        tables, figures, training.get("title") or folder.absolute().name, _verdicts(training)
    )


def _of_these_weights(folder: Path, results: str, hashes: Mapping[str, str]) -> None:
    for name, digest in hashes.items():
        if not (folder / name).is_file() or sha256(folder / name) != digest:
            raise UserError(
                f"{folder / results} is not of the weights in {folder / name}; restore them, or "
                "delete it, and the "
                "card claims nothing."
            )


def _training_table(record: Mapping[str, Any]) -> Table:
    sets = list(record["spearman"])
    rows = shipped_rows(record, sets)
    told = {"before this training": "spearman_start", "this model": "spearman"}
    rows += [
        [name, *(number(record[key].get(each)) for each in sets)]
        for name, key in told.items()
        if record["steps"] or key == "spearman"
    ]
    title = scale(sets, record.get("metrics", {})).replace("Spearman", "Spearman correlation")
    return Table(["model", *sets], rows, title)


def _metric(record: Mapping[str, Any], name: str) -> str:
    metric: str = record.get("metrics", {}).get(name, "spearman")
    return "spearmanr" if metric.startswith("spearman") else metric


def _verdicts(record: Mapping[str, Any]) -> list[str]:
    told = [
        (as_text(one["sentence"]), one["verdict"] == "worse") for one in record.get("verdicts", ())
    ]
    return [f"**{sentence}**" if worse else sentence for sentence, worse in told]


def _own_and_reported(table: Table, paper: str | None) -> Table:
    """Keep our scores, and of the papers' those of this very model."""
    kept = [at for at, column in enumerate(table.columns) if at < 3 or column == paper]
    columns = [table.columns[at] if at < 3 else f"{table.columns[at]} in the paper" for at in kept]
    return replace(
        table, columns=columns, rows=[[cells[at] for at in kept] for cells in table.rows]
    )


def _figure(name: str, task: str, metric: str, score: float) -> EvalResult:
    return EvalResult(
        task_type=next(
            (kind for part, kind in _KINDS.items() if part in metric), "sentence-similarity"
        ),
        dataset_type=task,
        dataset_name=name,
        metric_type=metric,
        metric_value=score,
        metric_name=f"{metric} (%)",
    )
