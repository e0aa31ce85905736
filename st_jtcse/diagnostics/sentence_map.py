"""Sentences as points in a plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from st_jtcse.diagnostics.alignment_uniformity import unit_vectors
from st_jtcse.errors import UserError

MapMethod = Literal["pca", "tsne"]
_PERPLEXITY = 30.0


@dataclass(frozen=True)
class SentenceMap:
    """Embeddings in two dimensions."""

    points: NDArray[np.float64]  # (N, 2)
    # Share of the variance along each axis, (2,), with PCA; None with t-SNE, whose axes mean nothing
    explained: NDArray[np.float64] | None


def sentence_map(vectors: ArrayLike, method: MapMethod = "pca", seed: int = 42) -> SentenceMap:
    """Bring embeddings, at length 1, to two dimensions with scikit-learn.

    Args:
        vectors: Embeddings of N >= 3 sentences, (N, H).
        method: ``"pca"``, a projection whose distances can be read, or ``"tsne"``, which keeps neighbours together and
            nothing else.
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

    perplexity = min(_PERPLEXITY, (len(points) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=seed)
    return SentenceMap(np.asarray(tsne.fit_transform(points), np.float64), None)
