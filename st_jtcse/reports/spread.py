"""Mean and standard deviation over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """Mean and sample standard deviation; the latter is 0 for one value."""

    mean: float
    deviation: float


def spread(values: Sequence[float]) -> Spread | None:
    """Return the spread of some values, None if there are none."""
    if not values:
        return None
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)
