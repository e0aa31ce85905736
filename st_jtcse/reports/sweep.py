"""The runs of a sweep as one table and one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from st_jtcse.diagnostics.drawing import house_style, legend_name, panels, series
from st_jtcse.reports.spread import Spread, spread
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.sweep import Run, stage_keys

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Point:
    """One stage under one setting, over its seeds.

    Args:
        point: The setting, as told in tables.
        stage: The stage's name.
        seeds: How many runs have finished the stage.
        values: Spearman x 100 of the saved models by evaluation set, one for each seed.
        scores: The same, summed up.
    """

    point: str
    stage: str
    seeds: int
    values: dict[str, list[float]]
    scores: dict[str, Spread]


def summarize(runs: Sequence[Run]) -> list[Point]:
    """Sum up every stage that the sweep changes; with seeds alone, every stage.

    Args:
        runs: Runs that are finished, at least in part.
    """
    points = list(dict.fromkeys(run.point for run in runs))
    rows = []
    for stage in dict.fromkeys(stage.name for run in runs for stage in run.loaded.recipe.stages):
        if len(points) > 1 and not _changes(runs, stage):
            continue
        for point in points:
            records = [RunFolder(run.folder).record(stage) for run in runs if run.point == point]
            told = [record["spearman"] for record in records if record]
            names = [name for name in (told[0] if told else {}) if all(name in one for one in told)]
            values = {name: [one[name] for one in told] for name in names}
            scores = {name: found for name, given in values.items() if (found := spread(given))}
            rows.append(Point(point, stage, len(told), values, scores))
    return rows


def draw(rows: Sequence[Point]) -> Figure:
    """Draw a panel for each stage: the settings side by side, every seed a dot, bars of one standard deviation.

    Args:
        rows: From :func:`summarize`.

    Raises:
        UserError: matplotlib is not installed.
    """
    stages = list(dict.fromkeys(row.stage for row in rows))
    settings = max(sum(row.stage == stage for row in rows) for stage in stages)
    with house_style():
        figure, axes = panels(len(stages), columns=3, width=2.2 + 0.9 * settings, height=4.2)
        for panel, stage in zip(axes, stages):
            _draw_stage(panel, [row for row in rows if row.stage == stage])
            panel.set(title=stage, ylabel="Spearman x 100")
        axes[0].legend()
        return figure


def _draw_stage(axes: Axes, rows: Sequence[Point]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row.scores))
    for name, style in zip(names, series()):
        having = [(place, row) for place, row in enumerate(rows) if name in row.scores]
        axes.errorbar(
            [place for place, _ in having],
            [row.scores[name].mean for _, row in having],
            [row.scores[name].deviation for _, row in having],
            capsize=3,
            label=legend_name(name),
            **style | {"linestyle": "none"},
        )
        places = [place + 0.15 for place, row in having for _ in row.values[name]]
        values = [value for _, row in having for value in row.values[name]]
        axes.scatter(places, values, marker=style["marker"], s=8, color=style["color"], alpha=0.6)
    axes.set_xticks(range(len(rows)), [row.point.replace(", ", "\n") for row in rows])
    axes.margins(x=0.2)


def _changes(runs: Sequence[Run], stage: str) -> bool:
    """Whether runs of one seed differ in a stage."""
    seed = runs[0].seed
    return len({stage_keys(run.loaded)[stage] for run in runs if run.seed == seed}) > 1
