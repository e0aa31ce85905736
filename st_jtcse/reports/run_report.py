"""A run's table, and its own page: the verdict, dev and the losses by step, and a few pairs before
and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from st_jtcse.errors import UserError
from st_jtcse.ownership import replace_ours
from st_jtcse.records import RunResults, StageRecord
from st_jtcse.reports.dev_curves import Curve, loss_terms, read_curves
from st_jtcse.reports.drawing import (
    WIDE,
    house_style,
    legend_below,
    legend_name,
    panels,
    picture,
    series,
)
from st_jtcse.reports.page import Section, render_page, verdict_section
from st_jtcse.reports.table import Table, best_by_column, millions, number, scale, shipped_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "report.html"
_NO_VERDICT = (
    "There is no verdict: that needs a test set, and one model that the whole run starts from."
)
_MOST_STEPS = 10  # that a table of dev shows
_DRAWN = 1e30  # of a term: the most that a picture shows
_WITHOUT = (
    "The curves need matplotlib: pip install 'st-jtcse[plots]', then repeat the command with "
    "--resume."
)

# By stage and term of its loss: steps and values.
Terms = dict[str, dict[str, list[tuple[int, float]]]]


class Example(NamedTuple):
    """A graded pair, and its cosines by the model that the run starts from and by its last."""

    first: str
    second: str
    score: float
    before: float
    after: float


def results_table(results: RunResults, without: str | None = None) -> Table:
    """Return the start models as shipped, and every stage, where it started -> where it ended.

    Sets of the metric `without` are left out.
    """
    metrics = {name: metric for record in results.stages for name, metric in record.metrics.items()}
    found = dict.fromkeys(name for record in results.stages for name in record.spearman)
    sets = [name for name in found if without is None or metrics.get(name) != without]
    rows = [[name, "", "", *scores] for name, *scores in shipped_rows(results.as_shipped, sets)]
    for record in results.stages:
        name = record.name
        if record.steps and not record.best_step:
            name = f"{name}, start kept"
        changes = [_change(record, each) for each in sets]
        rows.append([name, millions(record.parameters), str(record.steps), *changes])
    title = f"{results.recipe}, seed {results.seed}: {scale(sets, metrics)}, start -> trained"
    return Table(["stage", "parameters", "steps", *sets], rows, title)


def _change(record: StageRecord, name: str) -> str:
    if name not in record.spearman:
        return ""
    return f"{number(record.spearman_start.get(name))} -> {number(record.spearman[name])}"


def write_run_report(
    folder: Path, results: RunResults, examples: Sequence[Example], set_name: str
) -> None:
    """Leave report.html beside the results.json of a run; without matplotlib it has tables alone.

    `examples` are pairs of the set of that name.
    """
    scores = results_table(results)
    # The scores first: a phone shows so much of a table.
    in_order = itemgetter(0, *range(3, len(scores.columns)), 1, 2)
    rows = list(map(in_order, scores.rows))
    best = best_by_column(rows, range(1, len(scores.columns) - 2))
    table = Table(in_order(scores.columns), rows, best=best)
    about = (
        f"{scores.title}. Marked: the best of each column. results.json holds all figures, "
        "recipe.yaml repeats the run."
    )
    found = results.verdicts
    verdict = verdict_section("Verdict", found) if found else Section("Verdict", _NO_VERDICT)
    sections = [verdict, Section("Stages", about, table), *_curves(folder, results)]
    if examples:
        told = (
            f"Cosines of {len(examples)} pairs of the set {set_name}, from the lowest to the "
            "highest gold score and chosen by that alone: as the start model is shipped, and by "
            "the last one."
        )
        cells = [
            [f"{one.first} / {one.second}", f"{one.score:g}", *map(number, one[3:])]
            for one in examples
        ]
        sections.append(
            Section("Before and after", told, Table(["pair", "gold", "before", "after"], cells))
        )
    replace_ours(folder / PAGE, render_page(f"{results.recipe}, seed {results.seed}", sections))


def _curves(folder: Path, results: RunResults) -> Iterator[Section]:
    """Yield dev by step, if it was evaluated, and the terms of the losses."""
    try:
        curves = read_curves([folder])
    except UserError:  # Nothing was evaluated in training.
        curves = []
    shipped = {name: found["dev"] for name, found in results.as_shipped.items() if "dev" in found}
    terms = _terms(results)
    told = [(curve.stage, curve.evaluations[0].score, curve.best) for curve in curves]
    words = "; ".join(f"{stage} from {start:.2f}, best {best:.2f}" for stage, start, best in told)
    alt = f"One line per stage: {words}."
    stages = f"One panel per stage, one line per term: {', '.join(terms)}."
    try:
        dev = picture(partial(draw_dev, curves, shipped), alt) if curves else None
        losses = picture(partial(draw_terms, terms), stages) if terms else None
        note = ""
    except UserError:
        dev = losses = None
        note = _WITHOUT
    if curves:
        how = "The score on dev x 100; at step 0 that of the model which the stage starts from."
        yield Section(
            "Dev by step", "\n\n".join(filter(None, [how, note])), _dev_table(curves), dev
        )
    if losses is not None:
        yield Section(
            "Loss terms", "The loss, and each term of it as it enters the sum.", picture=losses
        )


def _terms(results: RunResults) -> Terms:
    found: Terms = {}
    for record in results.stages:
        for entry in record.log:
            for name, value in loss_terms(entry).items():
                if abs(value) <= _DRAWN:
                    points = found.setdefault(record.name, {}).setdefault(name, [])
                    points.append((int(entry["step"]), value))
    return found


def _dev_table(curves: Sequence[Curve]) -> Table:
    """Return the scores by step, at no more steps than a table can show."""
    steps = sorted({evaluation.step for curve in curves for evaluation in curve.evaluations})
    shown = steps[:: -(-len(steps) // _MOST_STEPS)]
    cells = []
    for curve in curves:
        scores = {evaluation.step: number(evaluation.score) for evaluation in curve.evaluations}
        cells.append([curve.stage, *(scores.get(step, "") for step in shown)])
    return Table(["stage", *(f"step {step}" for step in shown)], cells)


@house_style()
def draw_dev(curves: Sequence[Curve], shipped: Mapping[str, float], width: float = WIDE) -> Figure:
    """Draw the score on dev over steps, a line a stage, and those of the start models as
    shipped.
    """
    figure, (axes,) = panels(1, width, least=width, height=4)
    looks = series()
    for curve, look in zip(curves, looks):
        steps, _, scores = zip(*curve.evaluations)
        axes.plot(steps, scores, label=legend_name(curve.stage), markersize=5, **look)
    for (name, score), look in zip(shipped.items(), looks):
        axes.axhline(score, label=f"{name}, as shipped", linewidth=1, **look | {"marker": ""})
    axes.set(xlabel="steps", ylabel="score on dev x 100")
    axes.locator_params("x", integer=True)
    legend_below(figure, axes)
    return figure


@house_style()
def draw_terms(terms: Terms, width: float = WIDE) -> Figure:
    """Draw a panel a stage: the terms of its loss over steps."""
    figure, all_axes = panels(len(terms), width, least=3.6, height=3.2)
    for axes, (stage, own) in zip(all_axes, terms.items()):
        for (name, points), look in zip(own.items(), series()):
            axes.plot(*zip(*points), label=legend_name(name), markersize=4, **look)
        values = [value for points in own.values() for _, value in points]
        if min(values) > 0 and max(values) > 30 * min(values):
            axes.set_yscale("log")
            # The usual one writes mathematics.
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("")
        axes.set(xlabel="steps", title=stage)
        axes.locator_params("x", integer=True)
        axes.legend(fontsize=8)
    return figure
