"""What an embedding space looks like: alignment, uniformity, cosines by gold score, and a map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from st_jtcse.correlation import unit_vectors
from st_jtcse.errors import UserError

# Rows whose distances to all others are held at once: memory stays linear in the number of vectors.
_BLOCK = 512
FIFTHS = 5
_GRID = np.linspace(-1, 1, 201)
MapMethod = Literal["pca", "tsne"]


def alignment(first: ArrayLike, second: ArrayLike) -> float:
    r"""Mean squared distance of positive pairs on the unit sphere; lower is closer.

    .. math:: \ell_{align} = E_{(x, x^+)} \, \lVert f(x) - f(x^+) \rVert^2

    Args:
        first: Embeddings of x, (P, H); brought to length 1.
        second: Embeddings of x+, (P, H), row by row its partner.

    Returns:
        A number from 0 to 4.

    Raises:
        UserError: A vector is zero or not finite.

    References:
        JTCSE (Zong et al.), Eq. 16; Wang and Isola, ICML 2020.
    """
    difference = unit_vectors(first) - unit_vectors(second)
    return float((difference**2).sum(axis=1).mean())  # JTCSE Eq. 16


def uniformity(vectors: ArrayLike) -> float:
    r"""Logarithm of the mean Gaussian potential of all pairs on the unit sphere; lower is more
    evenly spread.

    .. math:: \ell_{uniform} = \log E_{x \ne y} \, e^{-2 \lVert f(x) - f(y) \rVert^2}

    Args:
        vectors: Embeddings of N >= 2 different sentences, (N, H); brought to length 1.

    Returns:
        A number from -8 to 0.

    Raises:
        UserError: A vector is zero or not finite.

    References:
        JTCSE (Zong et al.), Eq. 17; Wang and Isola, ICML 2020.
    """
    points = unit_vectors(vectors)
    count, total = len(points), 0.0
    for start in range(0, count, _BLOCK):
        block = points[start : start + _BLOCK]
        # On the unit sphere ||u - v||^2 = 2 - 2 u.v
        total += float(np.exp(-2 * (2 - 2 * block @ points.T)).sum())
    # Every vector met itself once, with the potential 1.
    return float(np.log((total - count) / (count * (count - 1))))  # JTCSE Eq. 17


@dataclass(frozen=True)
class CosineDensity:
    """Cosines of graded pairs by fifth of the range of scores, the lowest fifth first."""

    edges: NDArray[np.float64]  # scores between which the fifths lie, (6,)
    counts: NDArray[np.int64]  # pairs in each, (5,)
    means: NDArray[np.float64]  # mean cosine of each, (5,); NaN where it is empty
    # Standard deviation of each, (5,); NaN where it is empty.
    deviations: NDArray[np.float64]
    # Cosines from -1 to 1 at which the density is given, (G,).
    grid: NDArray[np.float64]
    # Density of each fifth, (5, G); NaN where it has no two different cosines.
    density: NDArray[np.float64]


def score_fifths(scores: ArrayLike, score_range: tuple[float, float]) -> NDArray[np.int64]:
    """Return the fifth of the range that each score lies in, 0 to 4; a score on an edge belongs to
    the lower fifth.

    The highest fifth of STS scores from 0 to 5 is thus SimCSE's choice of positive pairs, those
    scored above 4.

    Args:
        scores: (P,).
        score_range: Lowest and highest score possible.
    """
    low, high = score_range
    # Rounded, because (1.8 - 1) / (5 - 1) is not exactly a fifth.
    position = np.round((np.asarray(scores, np.float64) - low) / (high - low) * FIFTHS, 9)
    return np.clip(np.ceil(position).astype(np.int64) - 1, 0, FIFTHS - 1)


def cosine_density(
    cosines: ArrayLike, scores: ArrayLike, score_range: tuple[float, float]
) -> CosineDensity:
    """Return the density of the cosines within each fifth of the range, by Gaussian kernels of
    Scott's bandwidth.

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
    return CosineDensity(
        edges, np.bincount(fifths, minlength=FIFTHS), means, deviations, _GRID, density
    )


@dataclass(frozen=True)
class SentenceMap:
    """Embeddings in two dimensions."""

    points: NDArray[np.float64]  # (N, 2)
    # Share of the variance along each axis, (2,), with PCA; None with t-SNE, whose axes mean
    # nothing
    explained: NDArray[np.float64] | None


def sentence_map(vectors: ArrayLike, method: MapMethod = "pca", seed: int = 42) -> SentenceMap:
    """Bring embeddings, at length 1, to two dimensions with scikit-learn.

    Args:
        vectors: Embeddings of N >= 3 sentences, (N, H).
        method: ``"pca"``, a projection whose distances can be read, or ``"tsne"``, which keeps
            neighbours together and nothing else.
        seed: Seed of t-SNE.

    Raises:
        UserError: There are fewer than three sentences, or a vector is zero or not finite.

    References:
        LS-RNS, Symmetry 2025, 17(5), 646, Fig. 2.
    """
    points = unit_vectors(vectors)
    if len(points) < 3:
        raise UserError(f"A map needs at least three different sentences, found {len(points)}.")
    if method == "pca":
        from sklearn.decomposition import PCA

        pca = PCA(n_components=2, svd_solver="full")
        return SentenceMap(pca.fit_transform(points), pca.explained_variance_ratio_)
    from sklearn.manifold import TSNE

    tsne = TSNE(perplexity=min(30.0, (len(points) - 1) / 3), init="pca", random_state=seed)
    return SentenceMap(np.asarray(tsne.fit_transform(points), np.float64), None)
