"""The runs of a sweep as one table and one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from st_jtcse.reports.drawing import house_style, panels
from st_jtcse.reports.spread import Spread, draw_spreads, names_in, shown, spreads
from st_jtcse.reports.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Point:
    """One stage under one setting, over its seeds."""

    point: str  # the setting, as told in tables
    stage: str  # the stage's name
    seeds: int  # how many runs have finished the stage
    values: dict[str, list[float]]  # Spearman x 100 of the saved models by evaluation set, one for each seed
    scores: dict[str, Spread]  # the same, summed up


def summarize(runs: Sequence[tuple[str, Mapping[str, Any]]], stages: Sequence[str]) -> list[Point]:
    """Sum up stages, each under every setting; of a run, its setting and its finished stages' results by name."""
    rows = []
    for stage in stages:
        for point in dict.fromkeys(setting for setting, _ in runs):
            told = [found[stage]["spearman"] for setting, found in runs if setting == point and stage in found]
            scores = spreads(told)
            rows.append(Point(point, stage, len(told), {name: [one[name] for one in told] for name in scores}, scores))
    return rows


def sweep_table(rows: Sequence[Point], recipe: str) -> Table:
    """Return what a sweep changed beside the scores of the stages that it changed."""
    sets = names_in([row.scores for row in rows])
    cells = [[row.point, row.stage, str(row.seeds), *(shown(row.scores.get(name)) for name in sets)] for row in rows]
    title = f"{recipe}: Spearman x 100, mean ± standard deviation over seeds"
    return Table(["setting", "stage", "seeds", *sets], cells, title, names=2)


@house_style()
def draw_sweep(rows: Sequence[Point]) -> Figure:
    """Draw a panel for each stage: the settings side by side, every seed a dot, bars of one standard deviation."""
    stages = list(dict.fromkeys(row.stage for row in rows))
    settings = max(sum(row.stage == stage for row in rows) for stage in stages)
    figure, axes = panels(len(stages), columns=3, width=2.2 + 0.9 * settings, height=4.2)
    for panel, stage in zip(axes, stages):
        _draw_stage(panel, [row for row in rows if row.stage == stage])
        panel.set(title=stage, ylabel="Spearman x 100")
    axes[0].legend()
    return figure


def _draw_stage(axes: Axes, rows: Sequence[Point]) -> None:
    for name, look in draw_spreads(axes, [row.scores for row in rows]).items():
        dots = [(at + 0.15, value) for at, row in enumerate(rows) for value in row.values.get(name, ())]
        xs, ys = zip(*dots)
        axes.scatter(xs, ys, marker=look["marker"], s=8, color=look["color"], alpha=0.6)
    axes.set_xticks(range(len(rows)), [row.point.replace(", ", "\n") for row in rows])
    axes.margins(x=0.2)
