"""How cosines are spread over pairs of low and of high gold scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FIFTHS = 5
_GRID = np.linspace(-1, 1, 201)


@dataclass(frozen=True)
class CosineDensity:
    """Cosines of graded pairs by fifth of the range of scores, the lowest fifth first."""

    edges: NDArray[np.float64]  # scores between which the fifths lie, (6,)
    counts: NDArray[np.int64]  # pairs in each, (5,)
    means: NDArray[np.float64]  # mean cosine of each, (5,); NaN where it is empty
    deviations: NDArray[np.float64]  # standard deviation of each, (5,); NaN where it is empty
    grid: NDArray[np.float64]  # cosines from -1 to 1 at which the density is given, (G,)
    density: NDArray[np.float64]  # density of each fifth, (5, G); NaN where it has no two different cosines


def score_fifths(scores: ArrayLike, score_range: tuple[float, float]) -> NDArray[np.int64]:
    """Return the fifth of the range that each score lies in, 0 to 4; a score on an edge belongs to the lower fifth.

    The highest fifth of STS scores from 0 to 5 is thus SimCSE's choice of positive pairs, those scored above 4.

    Args:
        scores: (P,).
        score_range: Lowest and highest score possible.
    """
    low, high = score_range
    # Rounded, because (1.8 - 1) / (5 - 1) is not exactly a fifth.
    position = np.round((np.asarray(scores, np.float64) - low) / (high - low) * FIFTHS, 9)
    return np.clip(np.ceil(position).astype(np.int64) - 1, 0, FIFTHS - 1)


def cosine_density(cosines: ArrayLike, scores: ArrayLike, score_range: tuple[float, float]) -> CosineDensity:
    """Return the density of the cosines within each fifth of the range of scores.

    Densities are Gaussian kernel estimates with Scott's bandwidth.

    Args:
        cosines: Cosine of each pair, (P,).
        scores: Gold score of each pair, (P,).
        score_range: Lowest and highest score possible.

    References:
        JTCSE (Zong et al.), Fig. 5.
    """
    from scipy.stats import gaussian_kde

    values, fifths = np.asarray(cosines, np.float64), score_fifths(scores, score_range)
    means, deviations = np.full(FIFTHS, np.nan), np.full(FIFTHS, np.nan)
    density = np.full((FIFTHS, len(_GRID)), np.nan)
    for index in range(FIFTHS):
        own = values[fifths == index]
        if len(own):
            means[index], deviations[index] = own.mean(), own.std()
        if len(own) > 1 and own.std() > 1e-9:
            density[index] = gaussian_kde(own)(_GRID)
    edges = np.linspace(*score_range, FIFTHS + 1)
    return CosineDensity(edges, np.bincount(fifths, minlength=FIFTHS), means, deviations, _GRID, density)
