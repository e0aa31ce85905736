"""The curves of a convergence report as a picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from st_jtcse.reports.convergence import Convergence, Curve
from st_jtcse.reports.pictures import LINES, MARKERS, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(curves: Sequence[Curve], rows: Sequence[Convergence], score: float) -> Figure:
    """Draw the score on dev over steps and over seconds, and the saved models' scores.

    Lines are means over seeds; the third panel's bars are standard deviations.

    Args:
        curves: The stages of all runs.
        rows: The same, summed up.
        score: Spearman x 100 on dev; drawn as a line.

    Raises:
        UserError: matplotlib is not installed.
    """
    figure = new_figure(13, 4.2)
    by_step, by_second, saved = figure.subplots(1, 3)
    for index, row in enumerate(rows):
        own = [curve for curve in curves if curve.stage == row.stage]
        # Seeds of one stage are evaluated at the same steps, unless one was told to stop early.
        length = min(len(curve.evaluations) for curve in own)
        points = list(zip(*(curve.evaluations[:length] for curve in own)))
        scores = [statistics.fmean(at.score for at in point) for point in points]
        style = {"marker": MARKERS[index % len(MARKERS)], "linestyle": LINES[index % len(LINES)], "markersize": 4}
        by_step.plot([point[0].step for point in points], scores, label=row.stage, **style)
        by_second.plot([statistics.fmean(at.seconds for at in point) for point in points], scores, **style)
    for axes, label in ((by_step, "steps"), (by_second, "seconds of training")):
        axes.axhline(score, color="0.6", linewidth=0.8)
        axes.set(xlabel=label, ylabel="Spearman x 100 on dev")
    _draw_saved(saved, rows)
    figure.legend(loc="outside lower center", ncols=min(len(rows), 7), frameon=False)
    return figure


def _draw_saved(axes: Axes, rows: Sequence[Convergence]) -> None:
    for index, name in enumerate(dict.fromkeys(name for row in rows for name in row.final)):
        having = [row for row in rows if name in row.final]
        axes.errorbar(
            [rows.index(row) for row in having],
            [row.final[name].mean for row in having],
            [row.final[name].deviation for row in having],
            marker=MARKERS[index % len(MARKERS)],
            linestyle="none",
            capsize=3,
            label=name,
        )
    axes.set_xticks(range(len(rows)), [row.stage for row in rows], rotation=30, ha="right")
    axes.set(ylabel="Spearman x 100, saved model")
    axes.legend(frameon=False)
