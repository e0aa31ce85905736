"""The results of `st-eval` as tables, as Markdown and as one page, the papers' figures
beside ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from st_jtcse.errors import UserError
from st_jtcse.evaluation.results import MARKDOWN, PAGE
from st_jtcse.evaluation.suites import SEARCHED
from st_jtcse.ownership import replace_ours
from st_jtcse.records import Beside, EvaluatedModel, EvaluationResults, SuiteScores
from st_jtcse.reports.drawing import (
    WIDE,
    house_style,
    legend_below,
    legend_name,
    panels,
    picture,
    save,
    series,
)
from st_jtcse.reports.markdown import as_text
from st_jtcse.reports.page import Picture, Section, grouped, render_page, verdict_section
from st_jtcse.reports.table import Place, Table, best_by_column, best_of, millions, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = "this model"
# How many of a table's models stand beside ours where there is room for few: on a terminal, in a
# picture.
FEW = 4


def suite_table(
    name: str, suite: SuiteScores, *, most: int | None = None, also: str | None = None
) -> Table:
    """Return a suite's scores beside those of the papers' models in its rows, the mean last.

    Of the papers' models `most` at most, and `also` one of which the papers have the mean alone.
    """
    models = list(dict.fromkeys(model for row in suite.rows for model in row.reported))[:most]
    if also not in models and also in suite.reported_average:
        models.append(also)
    cells = []
    for row in suite.rows:
        reported = map(row.reported.get, models)
        cells.append([row.label, row.metric or "", *map(number, (row.score, *reported))])
    title = name
    if suite.source:
        title = f"{name}: {suite.source}"
        reported = map(suite.reported_average.get, models)
        cells.append(["mean", "", *map(number, (suite.average, *reported))])
    best: set[Place] = set()
    for at, line in enumerate(cells):
        best |= best_of(cells, [(at, to) for to in range(2, len(line))])
    return Table(["task", "metric", OURS, *models], cells, title, names=2, best=best)


def search_table(suite: SuiteScores) -> Table:
    """Return all figures of searches over a corpus."""
    rows = [[label, *map(number, found.values())] for label, found in suite.search.items()]
    return Table(["search", *SEARCHED], rows, "search over the whole corpus")


def write_markdown(folder: Path, data: EvaluationResults) -> None:
    """Leave the results as Markdown."""
    replace_ours(folder / MARKDOWN, evaluation_markdown(data))


def evaluation_markdown(data: EvaluationResults) -> str:
    """Write results as Markdown."""
    model = data.model
    parts = [
        f"# Evaluation of {as_text(model.name)}",
        f"{_size(model)}, inputs of up to {model.max_seq_length} tokens; SHA-256 `{model.sha256}`. "
        "Scores are in percent.",
    ]
    for name, suite in data.suites.items():
        table, (beside, notes) = suite_table(name, suite), _notes(suite)
        others = {
            key: mean for key, mean in suite.reported_average.items() if key not in table.columns
        }
        parts += [f"## {as_text(name)}", as_text(beside), table.markdown()]
        if others:
            parts.append(f"Further means reported: {as_text(_listed(others))}.")
        if suite.search:
            parts += ["Search over the whole corpus:", search_table(suite).markdown()]
        for told, more in _further_tables(suite):
            parts += [told, more.markdown()]
        parts.append("\n".join(f"- {as_text(note)}" for note in notes))
    if data.beside is not None:
        verdicts = [f"- {as_text(verdict.sentence)}" for verdict in data.beside.verdicts]
        parts += [f"## Beside {as_text(data.beside.model)}", "\n".join(verdicts)]
    if data.missing:
        missing = [f"- {as_text(each)}" for each in _missing(data)]
        parts += ["## Without a result", "\n".join(missing)]
    versions = ", ".join(f"{library} {version}" for library, version in data.versions.items())
    parts.append(f"Versions: {versions}.")
    return "\n\n".join(filter(None, parts)) + "\n"


def write_evaluation(
    folder: Path, data: EvaluationResults, changed: Sequence[Section] = ()
) -> None:
    """Leave Markdown, and a page with a table of each suite and, with matplotlib, a picture of each
    with a score; `changed` are sections about what changed beside the first model.
    """
    model = data.model
    called = model.name
    if Path(called).is_dir():
        called = Path(called).absolute().name
    about = (
        f"{model.name}: {_size(model)}. Scores are in percent. SHA-256 of the model: "
        f"{model.sha256}."
    )
    sections: list[Section] = []
    if data.beside is not None:
        own = verdict_section(f"Verdict beside {data.beside.model}", data.beside.verdicts)
        sections.append(replace(own, table=_beside_table(called, data.beside)))
    sections += changed
    for name, suite in data.suites.items():
        beside, notes = _notes(suite)
        text = "\n\n".join(filter(None, [beside, *notes]))
        sections.append(
            Section(name, text, suite_table(name, suite), _picture(folder, name, suite))
        )
        if suite.search:
            sections.append(Section("Search", "Over the whole corpus.", search_table(suite)))
    if data.missing:
        sections.append(Section("Without a result", "\n\n".join(_missing(data))))
    sections.append(Section("The model", about))
    write_markdown(folder, data)
    replace_ours(folder / PAGE, render_page(f"Evaluation of {called}", sections))


def _beside_table(called: str, beside: Beside) -> Table:
    """Return the scores of the first model and of this one, a column a set."""
    found = beside.verdicts
    rows = [
        [beside.model, *(number(verdict.base) for verdict in found)],
        [called, *(number(verdict.score) for verdict in found)],
    ]
    columns = ["model", *(verdict.set for verdict in found)]
    return Table(columns, rows, best=best_by_column(rows, range(1, len(columns))))


@house_style()
def draw_suite(suite: SuiteScores, width: float = WIDE) -> Figure:
    """Draw a row for each task: this model's score among the reported ones."""
    rows = suite.rows
    figure, (axes,) = panels(1, width, least=width, height=1.6 + 0.28 * len(rows))
    for name, look in zip(suite_table("", suite, most=FEW).columns[2:], series()):
        scores = [row.reported.get(name) for row in rows]
        own = {"markersize": 4}
        if name == OURS:
            scores = [row.score for row in rows]
            own = {"markersize": 7, "zorder": 3}
        points = [(score, place) for place, score in enumerate(scores) if score is not None]
        xs = [score for score, _ in points]
        ys = [place for _, place in points]
        axes.plot(xs, ys, label=legend_name(name), **look | {"linestyle": "none"} | own)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("score (%)")
    axes.margins(y=0.5 / len(rows))
    legend_below(figure, axes)
    return figure


def _picture(folder: Path, name: str, suite: SuiteScores) -> Picture | None:
    scores = [f"{row.label} {row.score:.2f}" for row in suite.rows if row.score is not None]
    if not scores:
        return None
    alt = f"{name}: this model's scores among the reported ones. {', '.join(scores)}."
    try:
        wide = save(draw_suite(suite), folder, name)
        return picture(partial(draw_suite, suite), alt, wide)
    except UserError:  # The tables say it all.
        return None


def _missing(data: EvaluationResults) -> list[str]:
    return grouped((reason, key) for key, reason in data.missing.items())


def _further_tables(suite: SuiteScores) -> Iterator[tuple[str, Table]]:
    means = {name: [number(mean)] for name, mean in suite.by_metric.items()}
    sums, transfer = {}, {}
    for label, found in suite.aggregations.items():
        means_of_set = map(number, (found.all, found.mean, found.wmean))
        sums[label] = [*means_of_set, _listed(found.subsets)]
    for label, own in suite.transfer.items():
        transfer[label] = list(map(number, (own.accuracy, own.dev_accuracy, own.f1)))
    for told, columns, rows in (
        ("Means over the tasks by metric:", ["metric", OURS], means),
        (
            "Spearman by SentEval's aggregations:",
            ["set", "all", "mean", "weighted mean", "subsets"],
            sums,
        ),
        ("Transfer:", ["set", "accuracy", "accuracy where C was chosen", "F1"], transfer),
    ):
        if rows:
            yield told, Table(columns, [[label, *cells] for label, cells in rows.items()])


def _size(model: EvaluatedModel) -> str:
    return f"{millions(model.parameters)} parameters, {model.dimension} components"


def _notes(suite: SuiteScores) -> tuple[str, list[str]]:
    """Say what stands beside the scores, and what to know when comparing."""
    notes = [
        suite.note,
        *(f"{row.label}: {row.note}" for row in suite.rows if row.note),
    ]
    beside = f"Beside the figures of {suite.source}." if suite.source else ""
    return beside, list(filter(None, notes))


def _listed(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
