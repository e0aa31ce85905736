"""How many steps and seconds each stage of some runs takes to a score on dev, as a table and a picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from st_jtcse.reports.dev_curves import Curve
from st_jtcse.reports.drawing import house_style, legend_name, panels, series
from st_jtcse.reports.spread import Spread, draw_spreads, names_in, shown, spread, spreads
from st_jtcse.reports.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Convergence:
    """A stage over the seeds of all runs."""

    stage: str  # the stage's name
    seeds: int  # how many runs have the stage
    reached: int  # how many of them come to the score
    steps: Spread | None  # steps to the score, over those that reach it; None if none does
    seconds: Spread | None  # seconds of training to the score, likewise
    final: dict[str, Spread]  # Spearman x 100 of the saved models, by evaluation set


def common_score(curves: Sequence[Curve]) -> float:
    """Return the best score that every curve reaches."""
    return min(curve.best for curve in curves)


def convergence(curves: Sequence[Curve], score: float) -> list[Convergence]:
    """Sum up each stage over its seeds, in the order of first appearance."""
    rows = []
    for stage in dict.fromkeys(curve.stage for curve in curves):
        own = [curve for curve in curves if curve.stage == stage]
        reached = [evaluation for curve in own if (evaluation := curve.reaches(score))]
        steps = spread([evaluation.step for evaluation in reached])
        seconds = spread([evaluation.seconds for evaluation in reached])
        final = spreads([curve.final for curve in own])
        rows.append(Convergence(stage, len(own), len(reached), steps, seconds, final))
    return rows


def convergence_table(rows: Sequence[Convergence], score: float) -> Table:
    """Return the stages, one a row."""
    sets = names_in([row.final for row in rows])
    cells = [
        [
            row.stage,
            f"{row.reached} of {row.seeds}",
            shown(row.steps, 0),
            shown(row.seconds, 1),
            *(shown(row.final.get(name)) for name in sets),
        ]
        for row in rows
    ]
    title = f"to {score:.2f} on dev; Spearman x 100 of the saved models"
    return Table(["stage", "reached", "steps", "seconds", *sets], cells, title)


@house_style()
def draw_convergence(curves: Sequence[Curve], rows: Sequence[Convergence], score: float) -> Figure:
    """Draw the score on dev over steps and over seconds, and the saved models' scores.

    Lines are means over seeds; the third panel's bars are standard deviations.
    """
    figure, (by_step, by_second, saved) = panels(3, columns=3, width=4.3, height=4.2)
    for row, look in zip(rows, series()):
        own = [curve for curve in curves if curve.stage == row.stage]
        # Seeds of one stage are evaluated at the same steps, unless one was told to stop early.
        points = list(zip(*(curve.evaluations for curve in own)))
        scores = [statistics.fmean(at.score for at in point) for point in points]
        seconds = [statistics.fmean(at.seconds for at in point) for point in points]
        by_step.plot([point[0].step for point in points], scores, label=legend_name(row.stage), markersize=4, **look)
        by_second.plot(seconds, scores, markersize=4, **look)
    for axes, label in ((by_step, "steps"), (by_second, "training (s)")):
        axes.axhline(score, color="0.6", linewidth=0.8)
        axes.set(xlabel=label, ylabel="Spearman x 100 on dev")
    draw_spreads(saved, [row.final for row in rows])
    saved.set_xticks(range(len(rows)), [row.stage for row in rows], rotation=30, ha="right")
    saved.set(ylabel="Spearman x 100, saved model")
    saved.legend()
    figure.legend(loc="outside lower center", ncols=min(len(rows), 7))
    return figure
