"""Alignment and uniformity of an embedding space."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from st_jtcse.errors import UserError

# Rows whose distances to all others are held at once: memory stays linear in the number of vectors.
_BLOCK = 512


def unit_vectors(vectors: ArrayLike) -> NDArray[np.float64]:
    """Return the vectors at length 1, in float64.

    Raises:
        UserError: A vector is zero or not finite.
    """
    found = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    faulty = ~(np.isfinite(lengths) & (lengths > 0))
    if faulty.any():
        raise UserError(
            f"{int(faulty.sum())} of {len(found)} embeddings are zero or not finite, so they have no direction; check "
            "the model's weights."
        )
    return found / lengths


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
    r"""Logarithm of the mean Gaussian potential of all pairs on the unit sphere; lower is more evenly spread.

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
