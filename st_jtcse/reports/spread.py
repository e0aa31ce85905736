"""Mean and standard deviation over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from st_jtcse.reports.drawing import legend_name, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Spread(NamedTuple):
    """Mean and sample standard deviation; the latter is 0 for one value."""

    mean: float
    deviation: float


def spread(values: Sequence[float]) -> Spread | None:
    """Return the spread of some values, None if there are none."""
    if not values:
        return None
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)


def spreads(scores: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """Return the spread over seeds of each evaluation set that all of them have."""
    common = [name for name in (scores[0] if scores else {}) if all(name in own for own in scores)]
    return {name: found for name in common if (found := spread([own[name] for own in scores]))}


def shown(value: Spread | None, digits: int = 2) -> str:
    """Write a mean with its standard deviation."""
    return "-" if value is None else f"{value.mean:.{digits}f} ± {value.deviation:.{digits}f}"


def names_in(places: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the evaluation sets of some places, in the order of first appearance."""
    return list(dict.fromkeys(name for place in places for name in place))


def draw_spreads(axes: Axes, places: Sequence[Mapping[str, Spread]]) -> dict[str, dict[str, Any]]:
    """Draw each evaluation set's mean at every place, with bars of one standard deviation; return the sets' looks."""
    looks = dict(zip(names_in(places), series()))
    for name, look in looks.items():
        having = [(at, *place[name]) for at, place in enumerate(places) if name in place]
        xs, means, deviations = zip(*having)
        axes.errorbar(xs, means, deviations, capsize=3, label=legend_name(name), **look | {"linestyle": "none"})
    return looks
