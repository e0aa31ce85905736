"""Mean and standard deviation over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
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


def shown(value: Spread | None, digits: int = 2) -> str:
    """Write a mean with its standard deviation."""
    return "-" if value is None else f"{value.mean:.{digits}f} ± {value.deviation:.{digits}f}"


def names_in(places: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the evaluation sets of some places, in the order of first appearance."""
    return list(dict.fromkeys(name for place in places for name in place))


def draw_spreads(axes: Axes, places: Sequence[Mapping[str, Spread]], also: Callable[..., None] | None = None) -> None:
    """Draw a series for each evaluation set: its mean at every place, with bars of one standard deviation.

    Args:
        axes: Where.
        places: Spreads by evaluation set, from left to right.
        also: Called with the name and the look of each series.
    """
    for name, look in zip(names_in(places), series()):
        having = [(at, place[name]) for at, place in enumerate(places) if name in place]
        axes.errorbar(
            [at for at, _ in having],
            [found.mean for _, found in having],
            [found.deviation for _, found in having],
            capsize=3,
            label=legend_name(name),
            **look | {"linestyle": "none"},
        )
        if also is not None:
            also(name, look)
