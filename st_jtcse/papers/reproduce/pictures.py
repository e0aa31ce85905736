"""The pictures, counts and scores that items have beside their figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from st_jtcse.atomic import new_folder, write_atomically
from st_jtcse.evaluation.protocols import suites
from st_jtcse.papers.reproduce.cells import Cells, plan_of
from st_jtcse.papers.reproduce.chains import results_of
from st_jtcse.papers.reproduce.items import Item
from st_jtcse.recipe.load import load_recipe
from st_jtcse.records import EvaluationResults, read
from st_jtcse.reports.drawing import WIDE, house_style, save
from st_jtcse.reports.table import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SURFACE = "modulus_surface"


def surface() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return k, the ratio of the moduli, t, the cosine, and L_TMC over both (JTCSE Eq. 5)."""
    k, t = np.meshgrid(np.linspace(0, 3, 61), np.linspace(-1, 1, 41))
    return k, t, np.sqrt(np.maximum(1 + k**2 - 2 * k * t, 0)) / (1 + k)


@house_style()
def draw_surface(width: float = WIDE) -> Figure:
    """Draw the surface; its minimum, 0, lies at k = 1 and t = 1."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4.5))
    axes = figure.add_subplot(projection="3d")
    axes.plot_surface(*surface(), cmap="Blues_r", linewidth=0)
    axes.scatter([1], [1], [0], color="black")
    axes.set(xlabel="k, ratio of the moduli", ylabel="t, cosine", zlabel="L_TMC")
    return figure


def draw(item: Item, cells: Cells) -> list[str]:
    """Draw an item's pictures into its folder, once, and say where they are."""
    folder = cells.folder / item.id
    if folder.exists():
        return [f"Pictures: {folder}."]
    if item.make == "surface":
        with new_folder(folder) as new:
            save(draw_surface(), new, SURFACE, write_atomically)
        return [f"Pictures: {folder}."]
    if item.make != "diagnosis":
        return []
    from st_jtcse.papers.reports.diagnosis_report import write_report

    found = []
    for label, place in item.places().items():
        # A model of which two things are measured is shown once.
        if place.measure is not None:
            continue
        stage = cells.stage(place, cells.seeds[0])
        if stage is not None:
            found.append(cells.diagnosis(item, label, stage))
    if not found:
        return []
    with new_folder(folder) as new:
        write_report(new, found, plan_of(item), {})
    return [f"Pictures: {folder / 'index.html'}."]


def counts_of(item: Item, recipes: Sequence[str]) -> list[str]:
    """Return how many rows each data set of some recipes has, or of the item's suite."""
    if item.suite is not None:
        rows = suites()[str(item.suite)].rows
        told = ", ".join(f"{row.paper} {row.samples or 'not told'}" for row in rows)
        return [f"{item.suite}, samples: {told}."]
    from st_jtcse.training.forecast import rows_of
    from st_jtcse.training.stage_inputs import load_inputs

    found = []
    for loaded in map(load_recipe, recipes):
        stage = loaded.stages[0]
        inputs = load_inputs([stage], loaded.cache_dir)[stage.name]
        sizes = {name: len(one.scores) for name, one in inputs.evaluators.items()}
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        found.append(f"{loaded.recipe.name}: {rows_of(stage, inputs)} training rows; {told}.")
    return found


def scores_of(item: Item, folder: Path) -> list[str]:
    """Return what the evaluations of an item's commands gave, beside what the paper has."""
    told = []
    for command in item.commands:
        if "st-eval runs" not in command:
            continue
        path = folder / results_of(command) / "results.json"
        if not path.is_file():
            continue
        for name, suite in read(EvaluationResults, path, "repeat the command").suites.items():
            published = [f"{model} {value:g}" for model, value in suite.reported_average.items()]
            ours = f"{command}: {name} {number(suite.average)}"
            told.append(f"{ours}; the paper's: {', '.join(published)}.")
    return told
