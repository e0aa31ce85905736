"""Directions and cosines of embeddings, and Spearman's correlation of them with scores, equal
values with the mean of their ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr
from sentence_transformers.util import pairwise_cos_sim
from torch import from_numpy

from st_jtcse.errors import UserError

# From indices of items, (n,) int64, to the correlation over those.
OfDraws = Callable[[npt.NDArray[np.int64]], float]
_Ranks = npt.NDArray[np.int64]


def unit_vectors(vectors: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the vectors at length 1, in float64; raises UserError where one is zero or
    not finite.
    """
    found = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    faulty = ~(np.isfinite(lengths) & (lengths > 0))
    if faulty.any():
        raise UserError(
            f"{int(faulty.sum())} of {len(found)} embeddings are zero or not finite, so they have "
            "no direction; check the model's weights."
        )
    return found / lengths


def pair_cosines(
    first: npt.NDArray[np.float32], second: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return the cosine of each pair of rows, the very number that Sentence-Transformers ranks."""
    cosines: npt.NDArray[np.float32] = pairwise_cos_sim(
        from_numpy(first), from_numpy(second)
    ).numpy()
    return cosines


def spearman(values: npt.ArrayLike, others: npt.ArrayLike) -> float:
    """Return scipy's correlation, NaN where all of one side are equal."""
    first, second = np.asarray(values), np.asarray(others)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan
    return float(spearmanr(first, second).statistic)


def spearman_of_draws(values: npt.NDArray[Any], others: npt.NDArray[Any]) -> OfDraws:
    """Return :func:`spearman` as a function of drawn items, some of them several times.

    Values are sorted once; the ranks of a draw are then counted, in a twentieth of the time.
    """
    first, second = places(values), places(others)

    def of_draw(items: npt.NDArray[np.int64]) -> float:
        x, y = _centred_ranks(first[items]), _centred_ranks(second[items])
        spread = math.sqrt((x @ x) * (y @ y))
        if spread:
            return float(x @ y / spread)
        return math.nan

    return of_draw


def places(values: npt.NDArray[Any]) -> _Ranks:
    """Return each value's place among the different ones, from 0."""
    found: _Ranks = np.unique(values, return_inverse=True)[1]
    return found


def _centred_ranks(drawn: _Ranks) -> npt.NDArray[np.float64]:
    counts = np.bincount(drawn)
    # Of equal ones their mean.
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[drawn]
    return np.asarray(ranks - ranks.mean())
