"""One function a picture: numbers by model in, figure out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from st_jtcse.papers.diagnostics.embedding_space import FIFTHS, CosineDensity, SentenceMap
from st_jtcse.papers.diagnostics.encoders import GROUPS, AttentionSink, CLSEnergy, Modulus
from st_jtcse.reports.drawing import WIDE, house_style, legend_below, legend_name, panels, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE = "#0072B2", "#D55E00"


@house_style()
def draw_points(
    values: Mapping[str, tuple[float, float]],
    width: float = WIDE,
    *,
    over: str,
    shown: str,
    from_zero: bool = False,
) -> Figure:
    """Draw a point a model: the first number, called `shown`, over the second, whose axis may begin
    at zero.
    """
    figure, (axes,) = panels(1, width, least=width, height=4)
    for (name, (y, x)), look in zip(values.items(), series()):
        axes.plot(x, y, markersize=8, label=legend_name(name), **look | {"linestyle": "none"})
    axes.margins(0.2)
    legend_below(figure, axes)
    if from_zero:
        axes.set_xlim(left=0)
    axes.set(xlabel=over, ylabel=shown)
    return figure


@house_style()
def draw_cls_energy(values: Mapping[str, CLSEnergy], width: float = WIDE) -> Figure:
    """Draw a line an encoder: mean E_CLS over layers, and beside it how far encoders are from the
    first one.
    """
    first, *others = values.values()
    figure, all_axes = panels(2 if others else 1, width, least=4, height=3.8)
    for (name, energy), look in zip(values.items(), series()):
        layers = np.arange(1, len(energy.mean) + 1)
        all_axes[0].plot(layers, energy.mean, label=legend_name(name), markersize=5, **look)
        if others and len(energy.mean) == len(first.mean):
            all_axes[1].plot(layers, energy.mean - first.mean, markersize=5, **look)
    for axes in all_axes:
        axes.set_xticks(np.arange(1, max(len(energy.mean) for energy in values.values()) + 1))
        axes.set_xlabel("layer")
    all_axes[0].set_ylim(bottom=0)
    all_axes[0].set_ylabel("mean E_CLS (ratio of norms)")
    if others:
        all_axes[1].set_ylabel("difference from the first")
    legend_below(figure, all_axes[0])
    return figure


@house_style()
def draw_attention_sink(values: Mapping[str, AttentionSink], width: float = WIDE) -> Figure:
    """Draw a heat map an encoder: share of each layer's attention by group of tokens, also written
    into the cells.
    """
    depth = max(len(sink.mass) for sink in values.values())
    figure, all_axes = panels(len(values), width, least=4, height=1.3 + 0.32 * depth)
    for axes, (name, sink) in zip(all_axes, values.items()):
        axes.grid(visible=False)
        shares = 100 * sink.mass
        cells = axes.imshow(shares, cmap="Blues", vmin=0, vmax=100, aspect="auto")
        for (layer, group), share in np.ndenumerate(shares):
            colour = "black" if share < 60 else "white"
            axes.text(group, layer, f"{share:.0f}", ha="center", va="center", color=colour)
        axes.set_xticks(range(len(GROUPS)), GROUPS, fontsize=9)
        axes.set_yticks(range(len(shares)), [str(layer + 1) for layer in range(len(shares))])
        axes.set_ylabel("layer")
        axes.set_title(textwrap.fill(name, 32), fontsize=10)
    figure.colorbar(cells, ax=all_axes, label="share of attention (%)")
    return figure


@house_style()
def draw_attention_maps(values: Mapping[str, AttentionSink], width: float = WIDE) -> Figure:
    """Draw a row an encoder of heat maps, one a layer: attention from token to token."""
    from matplotlib.figure import Figure

    depth = max(len(sink.maps) for sink in values.values())
    size = width / depth
    figure = Figure(figsize=(width, 1.4 * size * len(values) + 0.8))
    grid = figure.subplots(len(values), depth, squeeze=False)
    for row, (name, sink) in zip(grid, values.items()):
        for layer, axes in enumerate(row):
            axes.grid(visible=False)
            axes.set_xticks([])
            axes.set_yticks([])
            if layer < len(sink.maps):
                axes.imshow(sink.maps[layer], cmap="Blues", vmin=0, vmax=1)
                axes.set_title(str(layer + 1), fontsize=8)
        row[0].set_yticks(range(len(sink.tokens)), sink.tokens, fontsize=5)
        row[0].set_ylabel(textwrap.fill(name, 20), fontsize=8)
    return figure


@house_style()
def draw_cosines(values: Mapping[str, NDArray[np.float64]], width: float = WIDE) -> Figure:
    """Draw a curve a model: the density of its cosines, in percent of the pairs."""
    figure, (axes,) = panels(1, width, least=width, height=3.8)
    _outlines(axes, values)
    axes.set(xlabel="cosine", ylabel="pairs (%)")
    legend_below(figure, axes)
    return figure


@house_style()
def draw_modulus(values: Mapping[str, Modulus], width: float = WIDE) -> Figure:
    """Draw two panels: moduli of the last CLS state and of the pooler output, a line an encoder."""
    figure, (left, right) = panels(2, width, least=4, height=3.8)
    _outlines(left, {name: found.hidden for name, found in values.items()})
    _outlines(right, {name: found.pooler for name, found in values.items()})
    left.set(xlabel="norm of the last CLS state", ylabel="sentences (%)")
    right.set(xlabel="norm of the pooler output", ylabel="sentences (%)")
    legend_below(figure, left)
    return figure


@house_style()
def draw_cosine_density(values: Mapping[str, CosineDensity], width: float = WIDE) -> Figure:
    """Draw a panel a model: the density of cosines, one ridge a fifth of the gold scores, the
    highest on top.
    """
    figure, all_axes = panels(len(values), width, least=3.6, height=4)
    peaks = [np.nanmax(one.density) for one in values.values() if not np.isnan(one.density).all()]
    peak = max(peaks, default=1.0)
    lowest = min(map(_first_visible, values.values()))
    for axes, (name, found) in zip(all_axes, values.items()):
        _draw_ridges(axes, found, lowest, peak)
        axes.set_xlim(lowest, 1)
        axes.set_xlabel("cosine (tick: mean)")
        axes.set_title(textwrap.fill(name, 32), fontsize=10)
    all_axes[0].set_ylabel("gold score")
    return figure


def _first_visible(found: CosineDensity) -> float:
    """Return the lowest cosine at which a density can be seen; of none the lowest of all."""
    seen = found.grid[np.any(np.nan_to_num(found.density) > 0.01, axis=0)]
    if not len(seen):
        seen = found.grid
    return float(seen.min())


def _draw_ridges(axes: Axes, found: CosineDensity, lowest: float, peak: float) -> None:
    labels = []
    shown = found.grid >= lowest
    grid = found.grid[shown]
    for fifth, (line, mean) in enumerate(zip(found.density, found.means)):
        scores = f"{found.edges[fifth]:g} to {found.edges[fifth + 1]:g}"
        labels.append(f"{scores}\n{found.counts[fifth]} pairs")
        if not np.isnan(line).any():
            ridge = fifth + 1.3 * line[shown] / peak
            order = FIFTHS - fifth
            axes.fill_between(grid, fifth, ridge, color=_BLUE, alpha=0.35, zorder=order)
            axes.plot(grid, ridge, color=_BLUE, linewidth=1.2, zorder=order)
        if not np.isnan(mean):
            axes.plot(mean, fifth, marker="|", markersize=9, color="black", zorder=FIFTHS + 1)
    axes.set_yticks(range(FIFTHS), labels, fontsize=8)


@house_style()
def draw_sentence_map(
    values: Mapping[str, SentenceMap], joined: NDArray[np.int64], width: float = WIDE
) -> Figure:
    """Draw a panel a model, of the same sentences: a dot a sentence, squares and a line for pairs
    of rows, (M, 2).
    """
    from matplotlib.collections import LineCollection

    figure, all_axes = panels(len(values), width, least=3.6, height=3.9)
    for axes, (name, found) in zip(all_axes, values.items()):
        axes.add_collection(
            LineCollection(list(found.points[joined]), colors=_ORANGE, linewidths=0.9)
        )
        single = np.setdiff1d(np.arange(len(found.points)), joined)
        axes.plot(*found.points[single].T, "o", markersize=2.2, color=_BLUE)
        axes.plot(*found.points[np.unique(joined)].T, "s", markersize=3.2, color=_ORANGE)
        axes.set_aspect("equal", adjustable="datalim")
        units = ["no unit"] * 2
        if found.explained is not None:
            units = [f"{100 * share:.1f} % of variance" for share in found.explained]
        axes.set(xlabel=f"axis 1 ({units[0]})", ylabel=f"axis 2 ({units[1]})")
        axes.set_title(textwrap.fill(name, 32), fontsize=10)
    return figure


def _outlines(axes: Axes, values: Mapping[str, NDArray[np.float64] | None]) -> None:
    """Outlined histograms over common bins."""
    given = [norms for norms in values.values() if norms is not None]
    if not given:
        axes.text(0.5, 0.5, "no pooler", ha="center", transform=axes.transAxes)
        return
    low, high = min(map(np.min, given)), max(map(np.max, given))
    margin = 0.02 * (high - low) or 0.5
    edges = np.linspace(low - margin, high + margin, 26)
    style: dict[str, Any] = {"drawstyle": "steps-mid", "markersize": 4, "markevery": 4}
    for (name, norms), look in zip(values.items(), series()):
        if norms is not None:
            shares = 100 * np.histogram(norms, edges)[0] / len(norms)
            axes.plot((edges[1:] + edges[:-1]) / 2, shares, label=legend_name(name), **style | look)
    axes.set_ylim(bottom=0)
