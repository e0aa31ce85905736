"""The results that a saved model's folder holds, for its card: nothing else may be
claimed there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

from huggingface_hub import EvalResult

from st_jtcse.errors import UserError
from st_jtcse.evaluation.results import RESULTS
from st_jtcse.hashing import sha256
from st_jtcse.records import EvaluationResults, StageRecord, VerdictRecord, read
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
    way_out = "a card shows only what it holds, so restore it or delete it"
    tables: list[tuple[Table, str | None]] = []
    figures: list[EvalResult] = []
    title, paper, verdicts = folder.absolute().name, None, []
    if (path := folder / TRAINING_RECORD).is_file():
        training = read(StageRecord, path, way_out)
        _of_these_weights(folder, path, training.weights_sha256)
        title, paper = training.title or title, training.reported_as
        verdicts = [_sentence(verdict) for verdict in training.verdicts]
        if training.spearman:
            tables.append((_training_table(training), None))
        figures += [
            _figure(name, name, _metric(training, name), score)
            for name, score in training.spearman.items()
        ]
    if (path := folder / EVALUATION / RESULTS).is_file():
        evaluation = read(EvaluationResults, path, way_out)
        _of_these_weights(folder, path, evaluation.model.files)
        for name, suite in evaluation.suites.items():
            picture = f"{EVALUATION}/{name}.png"
            table = _own_and_reported(suite_table(name, suite, also=paper), paper)
            tables.append((table, picture if (folder / picture).is_file() else None))
            figures += [
                _figure(row.label, row.task, row.metric, row.score)
                for row in suite.rows
                if row.metric is not None and row.score is not None
            ]
    return CardResults(tables, figures, title, verdicts)


def _of_these_weights(folder: Path, results: Path, hashes: Mapping[str, str]) -> None:
    for name, digest in hashes.items():
        if not (folder / name).is_file() or sha256(folder / name) != digest:
            raise UserError(
                f"{results} is not of the weights in {folder / name}; restore them, or delete it, "
                "and the card claims nothing."
            )


def _training_table(record: StageRecord) -> Table:
    sets = list(record.spearman)
    rows = shipped_rows(record.as_shipped, sets)
    if record.steps:
        before = [number(record.spearman_start.get(name)) for name in sets]
        rows.append(["before this training", *before])
    rows.append(["this model", *map(number, record.spearman.values())])
    title = scale(sets, record.metrics).replace("Spearman", "Spearman correlation")
    return Table(["model", *sets], rows, title)


def _metric(record: StageRecord, name: str) -> str:
    metric = record.metrics.get(name, "spearman")
    if metric.startswith("spearman"):
        return "spearmanr"
    return metric


def _sentence(verdict: VerdictRecord) -> str:
    sentence = as_text(verdict.sentence)
    if verdict.verdict == "worse":
        return f"**{sentence}**"
    return sentence


def _own_and_reported(table: Table, paper: str | None) -> Table:
    """Keep our scores, and of the papers' those of this very model."""
    columns = list(table.columns[:3])
    kept = [0, 1, 2]
    if paper in table.columns[3:]:
        columns.append(f"{paper} in the paper")
        kept.append(table.columns.index(paper, 3))
    return replace(table, columns=columns, rows=list(map(itemgetter(*kept), table.rows)))


def _figure(name: str, task: str, metric: str, score: float) -> EvalResult:
    kinds = [kind for part, kind in _KINDS.items() if part in metric]
    return EvalResult(
        task_type=kinds[0] if kinds else "sentence-similarity",
        dataset_type=task,
        dataset_name=name,
        metric_type=metric,
        metric_value=score,
        metric_name=f"{metric} (%)",
    )
