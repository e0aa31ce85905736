"""One function a picture: numbers by model in, figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from st_jtcse.diagnostics.embedding_space import FIFTHS, CosineDensity, SentenceMap
from st_jtcse.diagnostics.encoders import GROUPS, AttentionSink, CLSEnergy, Modulus
from st_jtcse.reports.drawing import house_style, legend_name, panels, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BINS = 25
_RIDGE = "#0072B2"
_JOINED = "#D55E00"


def draw_alignment_uniformity(values: Mapping[str, tuple[float, float]]) -> Figure:
    """Draw a point a model: alignment over uniformity."""
    labels = "uniformity (no unit; lower is more evenly spread)", "alignment (squared distance; lower is closer)"
    return _draw_points(values, *labels)


def draw_score_and_cost(values: Mapping[str, tuple[float, float]]) -> Figure:
    """Draw a point a model: Spearman x 100 over GMAC."""
    return _draw_points(values, "cost of a sentence of 32 tokens (GMAC)", "Spearman x 100", left=0)


def draw_cls_energy(values: Mapping[str, CLSEnergy]) -> Figure:
    """Draw a line an encoder: mean E_CLS over layers."""
    with house_style():
        figure, (axes,) = panels(1, columns=1, width=6, height=4.3)
        for (name, energy), look in zip(values.items(), series()):
            layers = np.arange(1, len(energy.mean) + 1)
            axes.plot(layers, energy.mean, label=legend_name(name), markersize=5, **look)
        axes.set_xticks(np.arange(1, max(len(energy.mean) for energy in values.values()) + 1))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("layer")
        axes.set_ylabel("mean E_CLS (ratio of norms)")
        figure.legend(loc="outside lower center", ncols=2)
        return figure


def draw_attention_sink(values: Mapping[str, AttentionSink]) -> Figure:
    """Draw a heat map an encoder: share of each layer's attention by group of tokens, also written into the cells."""
    with house_style():
        depth = max(len(sink.mass) for sink in values.values())
        figure, all_axes = panels(len(values), columns=2, width=4, height=1.3 + 0.32 * depth)
        for axes, (name, sink) in zip(all_axes, values.items()):
            axes.grid(visible=False)
            shares = 100 * sink.mass
            image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=100, aspect="auto")
            for (layer, group), share in np.ndenumerate(shares):
                axes.text(
                    group, layer, f"{share:.0f}", ha="center", va="center", color="black" if share < 60 else "white"
                )
            axes.set_xticks(range(len(GROUPS)), GROUPS, fontsize=9)
            axes.set_yticks(range(len(shares)), [str(layer + 1) for layer in range(len(shares))])
            axes.set_ylabel("layer")
            axes.set_title(name, fontsize=10)
        figure.colorbar(image, ax=all_axes, label="share of attention (%)")
        return figure


def draw_modulus(values: Mapping[str, Modulus]) -> Figure:
    """Draw two panels: moduli of the last CLS state and of the pooler output, a line an encoder."""
    with house_style():
        figure, (left, right) = panels(2, columns=2, width=4.6, height=3.8)
        _outlines(left, {name: found.hidden for name, found in values.items()})
        left.set_xlabel("norm of the last CLS state")
        left.set_ylabel("sentences (%)")
        right.set_ylabel("sentences (%)")
        _outlines(right, {name: found.pooler for name, found in values.items()})
        right.set_xlabel("norm of the pooler output")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        return figure


def draw_cosine_density(values: Mapping[str, CosineDensity]) -> Figure:
    """Draw a panel a model: the density of cosines, one ridge a fifth of the gold scores, the highest on top."""
    with house_style():
        figure, all_axes = panels(len(values), columns=2, width=3.9, height=4)
        peak = max((np.nanmax(one.density) for one in values.values() if not np.isnan(one.density).all()), default=1.0)
        lowest = min(float(found.grid[_support(found.density)].min()) for found in values.values())
        for index, (axes, (name, found)) in enumerate(zip(all_axes, values.items())):
            labels = []
            shown = found.grid >= lowest
            grid = found.grid[shown]
            for fifth, (line, mean) in enumerate(zip(found.density, found.means)):
                labels.append(f"{found.edges[fifth]:g} to {found.edges[fifth + 1]:g}\n{found.counts[fifth]} pairs")
                if not np.isnan(line).any():
                    ridge = fifth + 1.3 * line[shown] / peak
                    axes.fill_between(grid, fifth, ridge, color=_RIDGE, alpha=0.35, zorder=FIFTHS - fifth)
                    axes.plot(grid, ridge, color=_RIDGE, linewidth=1.2, zorder=FIFTHS - fifth)
                if not np.isnan(mean):
                    axes.plot(mean, fifth, marker="|", markersize=9, color="black", zorder=FIFTHS + 1)
            axes.set_yticks(range(FIFTHS), labels, fontsize=8)
            axes.set_xlim(lowest, 1)
            axes.set_xlabel("cosine (tick: mean)")
            axes.set_title(name, fontsize=10)
            if index == 0:
                axes.set_ylabel("gold score")
        return figure


def draw_sentence_map(values: Mapping[str, SentenceMap], joined: NDArray[np.int64]) -> Figure:
    """Draw a panel a model: a dot a sentence, squares and a line for the two of each pair given.

    Args:
        values: Maps by model, of the same sentences.
        joined: Rows of the sentences to join, (M, 2).
    """
    with house_style():
        from matplotlib.collections import LineCollection

        figure, all_axes = panels(len(values), columns=2, width=3.9, height=3.9)
        for axes, (name, found) in zip(all_axes, values.items()):
            axes.add_collection(LineCollection(list(found.points[joined]), colors=_JOINED, linewidths=0.9))
            single = np.setdiff1d(np.arange(len(found.points)), joined)
            axes.plot(*found.points[single].T, "o", markersize=2.2, color="#0072B2")
            axes.plot(*found.points[np.unique(joined)].T, "s", markersize=3.2, color=_JOINED)
            axes.set_aspect("equal", adjustable="datalim")
            units = (
                ["no unit"] * 2
                if found.explained is None
                else [f"{100 * x:.1f} % of variance" for x in found.explained]
            )
            axes.set_xlabel(f"axis 1 ({units[0]})")
            axes.set_ylabel(f"axis 2 ({units[1]})")
            axes.set_title(name, fontsize=10)
        return figure


def _draw_points(values: Mapping[str, tuple[float, float]], across: str, up: str, left: float | None = None) -> Figure:
    with house_style():
        figure, (axes,) = panels(1, columns=1, width=5.5, height=4)
        for (name, (y, x)), look in zip(values.items(), series()):
            axes.plot(x, y, markersize=8, label=legend_name(name), **look | {"linestyle": "none"})
        axes.margins(0.2)
        axes.legend(loc="best")
        if left is not None:
            axes.set_xlim(left=left)
        axes.set(xlabel=across, ylabel=up)
        return figure


def _outlines(axes: Axes, values: Mapping[str, NDArray[np.float64] | None]) -> None:
    """Outlined histograms over common bins."""
    given: Sequence[NDArray[np.float64]] = [norms for norms in values.values() if norms is not None]
    if not given:
        axes.text(0.5, 0.5, "no pooler", ha="center", transform=axes.transAxes)
        return
    low, high = min(map(np.min, given)), max(map(np.max, given))
    margin = 0.02 * (high - low) or 0.5
    edges = np.linspace(low - margin, high + margin, _BINS + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    for (name, norms), look in zip(values.items(), series()):
        if norms is not None:
            shares = 100 * np.histogram(norms, edges)[0] / len(norms)
            axes.plot(
                centres, shares, label=legend_name(name), drawstyle="steps-mid", markersize=4, markevery=4, **look
            )
    axes.set_ylim(bottom=0)


def _support(density: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where a density is visible; everywhere, if there is none."""
    visible = np.any(np.nan_to_num(density) > 0.01, axis=0)
    return np.asarray(visible if visible.any() else np.ones_like(visible))
