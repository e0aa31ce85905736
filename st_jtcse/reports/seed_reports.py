"""Stages over the seeds of several runs, as tables and pictures: convergence to a score on dev, and
sweeps.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from st_jtcse.records import StageRecord
from st_jtcse.reports.dev_curves import Curve
from st_jtcse.reports.drawing import house_style, legend_below, legend_name, panels, series
from st_jtcse.reports.table import Table, scale, shipped_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Spread(NamedTuple):
    """Mean and sample standard deviation; one value has none."""

    mean: float
    deviation: float | None


def spread(values: Sequence[float]) -> Spread | None:
    """Return the spread of some values, None if there are none."""
    if not values:
        return None
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def spreads(scores: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """Return the spread over seeds of each evaluation set that all of them have."""
    common = [name for name in (scores[0] if scores else {}) if all(name in own for own in scores)]
    return {name: found for name in common if (found := spread([own[name] for own in scores]))}


def shown(value: Spread | None, digits: int = 2) -> str:
    """Write a mean with its standard deviation, if it has one."""
    parts = [] if value is None else [part for part in value if part is not None]
    return " ± ".join(f"{part:.{digits}f}" for part in parts) or "-"


def names_in(places: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the evaluation sets of some places, in the order of first appearance."""
    return list(dict.fromkeys(name for place in places for name in place))


def draw_spreads(axes: Axes, places: Sequence[Mapping[str, Spread]]) -> dict[str, dict[str, Any]]:
    """Draw each evaluation set's mean at every place, with bars of one standard deviation; return
    the sets' looks.
    """
    looks = dict(zip(names_in(places), series()))
    for name, look in looks.items():
        having = [(at, *place[name]) for at, place in enumerate(places) if name in place]
        xs, means, deviations = zip(*having)
        bars = [deviation or 0.0 for deviation in deviations]
        axes.errorbar(
            xs, means, bars, capsize=3, label=legend_name(name), **look | {"linestyle": "none"}
        )
    return looks


@dataclass(frozen=True)
class Convergence:
    """A stage over the seeds of all runs."""

    stage: str  # the stage's name
    seeds: int  # how many runs have the stage
    reached: int  # how many of them come to the score
    steps: Spread | None  # steps to the score, over those that reach it; None if none does
    seconds: Spread | None  # seconds of training to the score, likewise
    final: dict[str, Spread]  # scores x 100 of the saved models, by evaluation set


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


def convergence_table(rows: Sequence[Convergence], score: float, curves: Sequence[Curve]) -> Table:
    """Return the stages, one a row, after the models that they start from."""
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
    shipped = {name: scores for curve in curves for name, scores in curve.as_shipped.items()}
    cells = [[name, "", "", "", *scores] for name, *scores in shipped_rows(shipped, sets)] + cells
    title = f"to {score:.2f} on dev; {scale(sets, _metrics(curves))} of the saved models"
    return Table(["stage", "reached", "steps", "seconds", *sets], cells, title)


def _metrics(curves: Sequence[Curve]) -> dict[str, str]:
    return {name: metric for curve in curves for name, metric in curve.metrics.items()}


@house_style()
def draw_convergence(curves: Sequence[Curve], rows: Sequence[Convergence], score: float) -> Figure:
    """Draw the score on dev over steps and over seconds, and the saved models' scores.

    Lines are means over seeds; the third panel's bars are standard deviations.
    """
    figure, (by_step, by_second, saved) = panels(3, 12.9, least=4.3, height=4.2)
    for row, look in zip(rows, series()):
        own = [curve for curve in curves if curve.stage == row.stage]
        # Seeds of one stage are evaluated at the same steps, unless one was told to stop early.
        points = list(zip(*(curve.evaluations for curve in own)))
        scores = [statistics.fmean(at.score for at in point) for point in points]
        seconds = [statistics.fmean(at.seconds for at in point) for point in points]
        by_step.plot(
            [point[0].step for point in points],
            scores,
            label=legend_name(row.stage),
            markersize=4,
            **look,
        )
        by_second.plot(seconds, scores, markersize=4, **look)
    metrics = _metrics(curves)
    for axes, label in ((by_step, "steps"), (by_second, "training (s)")):
        axes.axhline(score, color="0.6", linewidth=0.8)
        axes.set(xlabel=label, ylabel=f"{scale(['dev'], metrics)} on dev")
    draw_spreads(saved, [row.final for row in rows])
    saved.set_xticks(range(len(rows)), [row.stage for row in rows], rotation=30, ha="right")
    saved.set(ylabel=f"{scale(names_in([row.final for row in rows]), metrics)}, saved model")
    saved.legend()  # Of the sets; the stages' is below.
    legend_below(figure, by_step)
    return figure


@dataclass(frozen=True)
class Point:
    """One stage under one setting, over its seeds."""

    point: str  # the setting, as told in tables
    stage: str  # the stage's name
    seeds: int  # how many runs have finished the stage
    values: dict[
        str, list[float]
    ]  # scores x 100 of the saved models by evaluation set, one for each seed
    scores: dict[str, Spread]  # the same, summed up


def summarize(
    runs: Sequence[tuple[str, Mapping[str, StageRecord]]], stages: Sequence[str]
) -> list[Point]:
    """Sum up stages, each under every setting; of a run, its setting and its finished stages'
    results by name.
    """
    rows = []
    for stage in stages:
        for point in dict.fromkeys(setting for setting, _ in runs):
            told = [
                found[stage].spearman
                for setting, found in runs
                if setting == point and stage in found
            ]
            scores = spreads(told)
            rows.append(
                Point(
                    point,
                    stage,
                    len(told),
                    {name: [one[name] for one in told] for name in scores},
                    scores,
                )
            )
    return rows


def sweep_table(
    rows: Sequence[Point],
    recipe: str,
    as_shipped: Mapping[str, Mapping[str, float]],
    metrics: Mapping[str, str],
) -> Table:
    """Return what a sweep changed beside the scores of the stages that it changed, after those of
    the start models; `metrics` are those of the sets.
    """
    sets = names_in([row.scores for row in rows])
    cells = [
        [row.point, row.stage, str(row.seeds), *(shown(row.scores.get(name)) for name in sets)]
        for row in rows
    ]
    cells = [[name, "", "", *scores] for name, *scores in shipped_rows(as_shipped, sets)] + cells
    title = f"{recipe}: {scale(sets, metrics)}, mean ± standard deviation over seeds"
    return Table(["setting", "stage", "seeds", *sets], cells, title, names=2)


@house_style()
def draw_sweep(rows: Sequence[Point], metrics: Mapping[str, str]) -> Figure:
    """Draw a panel for each stage: the settings side by side, every seed a dot, bars of one
    standard deviation.
    """
    stages = list(dict.fromkeys(row.stage for row in rows))
    settings = max(sum(row.stage == stage for row in rows) for stage in stages)
    each = 2.2 + 0.9 * settings
    figure, axes = panels(len(stages), each * min(3, len(stages)), least=each, height=4.2)
    for panel, stage in zip(axes, stages):
        _draw_stage(panel, [row for row in rows if row.stage == stage])
        panel.set(title=stage, ylabel=scale(names_in([row.scores for row in rows]), metrics))
    axes[0].legend()
    return figure


def _draw_stage(axes: Axes, rows: Sequence[Point]) -> None:
    for name, look in draw_spreads(axes, [row.scores for row in rows]).items():
        dots = [
            (at + 0.15, value) for at, row in enumerate(rows) for value in row.values.get(name, ())
        ]
        xs, ys = zip(*dots)
        axes.scatter(xs, ys, marker=look["marker"], s=8, color=look["color"], alpha=0.6)
    axes.set_xticks(range(len(rows)), [row.point.replace(", ", "\n") for row in rows])
    axes.margins(x=0.2)
