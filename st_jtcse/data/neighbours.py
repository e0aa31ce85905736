"""Vectors drawn towards their nearest neighbours, which is what a text's topics have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from datasets import Dataset, concatenate_datasets

from st_jtcse.errors import UserError

_COPY = 0.9999  # Cosine from which on two texts are copies, which would only repeat a text's own vector.


def neighbourhood_means(
    vectors: npt.NDArray[Any], count: int, weight: float, chunk: int = 1024
) -> npt.NDArray[np.float32]:
    r"""Mix each vector's direction with the mean of its nearest neighbours', as one step of mean shift does.

    With u the unit vectors, N(i) the `count` nearest others and w_ij = max(u_i · u_j, 0):

    .. math:: m_i = \sum_{j \in N(i)} w_{ij} u_j, \qquad t_i = (1 - \alpha) u_i + \alpha \frac{m_i}{\|m_i\|}

    A text's copies are not its neighbours; a text without neighbours of positive cosine keeps its own direction.

    Args:
        vectors: One vector a text, (n, H).
        count: How many neighbours.
        weight: The neighbours' share α, 0 to 1.
        chunk: How many rows are compared with all at once.

    Returns:
        Unit vectors t_i / ||t_i||, (n, H) float32.

    Raises:
        UserError: There are no more than `count` vectors.

    References:
        Fukunaga and Hostetler, The Estimation of the Gradient of a Density Function, IEEE TIT 1975.
    """
    if len(vectors) <= count:
        raise UserError(f"The {count} nearest neighbours of a text need more than {len(vectors)} texts; add text.")
    unit = _unit(vectors.astype(np.float32))
    mixed = np.empty_like(unit)
    for start in range(0, len(unit), chunk):
        own = unit[start : start + chunk]
        cosines = own @ unit.T
        # The text itself among them.
        cosines[cosines > _COPY] = -1.0
        near = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        weights = np.maximum(np.take_along_axis(cosines, near, axis=1), 0.0)
        mean = _unit(np.einsum("bk,bkh->bh", weights, unit[near]))
        mixed[start : start + chunk] = (1 - weight) * own + weight * np.where(
            mean.any(axis=1, keepdims=True), mean, own
        )
    return _unit(mixed)


def with_neighbourhood_means(dataset: Dataset, count: int, weight: float) -> Dataset:
    """Draw the column ``label`` towards its neighbours by :func:`neighbourhood_means`; each vector keeps its length.

    Raises UserError: there are no more than `count` rows.
    """
    vectors = dataset.with_format("numpy")["label"][:]
    lengths = np.linalg.norm(vectors.astype(np.float32), axis=1, keepdims=True)
    half = (lengths * neighbourhood_means(vectors, count, weight)).astype(np.float16)
    column = pa.FixedSizeListArray.from_arrays(pa.array(half.ravel()), half.shape[1])
    mixed = Dataset(pa.table({"label": column}))
    return concatenate_datasets([dataset.remove_columns("label"), mixed], axis=1)


def _unit(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
