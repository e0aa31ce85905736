"""Stages over the seeds of several runs, as tables and pictures: convergence to a score on dev, and
sweeps.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from st_jtcse.records import StageRecord
from st_jtcse.reports.dev_curves import Curve, Evaluation
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
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Spread(statistics.fmean(values), deviation)


def spreads(scores: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """Return the spread over seeds of each evaluation set that all of them have."""
    found: dict[str, Spread] = {}
    for name in names_in(scores):
        values = [own[name] for own in scores if name in own]
        own_spread = spread(values)
        if own_spread is not None and len(values) == len(scores):
            found[name] = own_spread
    return found


def shown(value: Spread | None, digits: int = 2) -> str:
    """Write a mean with its standard deviation, if it has one."""
    if value is None:
        return "-"
    return " ± ".join(f"{part:.{digits}f}" for part in value if part is not None)


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
    # Steps to the score, over those that reach it; None if none does.
    steps: Spread | None
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
    shipped = {name: scores for curve in curves for name, scores in curve.as_shipped.items()}
    cells = [[name, "", "", "", *scores] for name, *scores in shipped_rows(shipped, sets)]
    for row in rows:
        reached = f"{row.reached} of {row.seeds}"
        speed = shown(row.steps, 0), shown(row.seconds, 1)
        cells.append([row.stage, reached, *speed, *map(shown, map(row.final.get, sets))])
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
        steps, seconds, scores = zip(*_means(own))
        by_step.plot(steps, scores, label=legend_name(row.stage), markersize=4, **look)
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


def _means(curves: Sequence[Curve]) -> Iterator[Evaluation]:
    """Yield the means over the seeds of a stage."""
    # They are evaluated at the same steps, unless one was told to stop early.
    for point in zip(*(curve.evaluations for curve in curves)):
        seconds = statistics.fmean(at.seconds for at in point)
        yield Evaluation(point[0].step, seconds, statistics.fmean(at.score for at in point))


@dataclass(frozen=True)
class Point:
    """One stage under one setting, over its seeds."""

    point: str  # the setting, as told in tables
    stage: str  # the stage's name
    seeds: int  # how many runs have finished the stage
    # Scores x 100 of the saved models by evaluation set, one for each seed.
    values: dict[str, list[float]]
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
            values = {}
            for name in scores:
                values[name] = [one[name] for one in told]
            rows.append(Point(point, stage, len(told), values, scores))
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
    cells = [[name, "", "", *scores] for name, *scores in shipped_rows(as_shipped, sets)]
    for row in rows:
        scores = map(shown, map(row.scores.get, sets))
        cells.append([row.point, row.stage, str(row.seeds), *scores])
    title = f"{recipe}: {scale(sets, metrics)}, mean ± standard deviation over seeds"
    return Table(["setting", "stage", "seeds", *sets], cells, title, names=2)


@house_style()
def draw_sweep(rows: Sequence[Point], metrics: Mapping[str, str]) -> Figure:
    """Draw a panel for each stage: the settings side by side, every seed a dot, bars of one
    standard deviation.
    """
    stages = Counter(row.stage for row in rows)
    each = 2.2 + 0.9 * max(stages.values())
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
