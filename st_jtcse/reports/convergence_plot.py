"""The curves of a convergence report as a picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from st_jtcse.diagnostics.drawing import house_style, legend_name, panels, series
from st_jtcse.reports.convergence import Convergence, Curve

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
    with house_style():
        figure, (by_step, by_second, saved) = panels(3, columns=3, width=4.3, height=4.2)
        for row, style in zip(rows, series()):
            own = [curve for curve in curves if curve.stage == row.stage]
            # Seeds of one stage are evaluated at the same steps, unless one was told to stop early.
            length = min(len(curve.evaluations) for curve in own)
            points = list(zip(*(curve.evaluations[:length] for curve in own)))
            steps = [point[0].step for point in points]
            seconds = [statistics.fmean(at.seconds for at in point) for point in points]
            scores = [statistics.fmean(at.score for at in point) for point in points]
            by_step.plot(steps, scores, label=legend_name(row.stage), markersize=4, **style)
            by_second.plot(seconds, scores, markersize=4, **style)
        for axes, label in ((by_step, "steps"), (by_second, "training (s)")):
            axes.axhline(score, color="0.6", linewidth=0.8)
            axes.set(xlabel=label, ylabel="Spearman x 100 on dev")
        _draw_saved(saved, rows)
        figure.legend(loc="outside lower center", ncols=min(len(rows), 7))
        return figure


def _draw_saved(axes: Axes, rows: Sequence[Convergence]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row.final))
    for name, style in zip(names, series()):
        having = [row for row in rows if name in row.final]
        axes.errorbar(
            [rows.index(row) for row in having],
            [row.final[name].mean for row in having],
            [row.final[name].deviation for row in having],
            capsize=3,
            label=legend_name(name),
            **style | {"linestyle": "none"},
        )
    axes.set_xticks(range(len(rows)), [row.stage for row in rows], rotation=30, ha="right")
    axes.set(ylabel="Spearman x 100, saved model")
    axes.legend()
