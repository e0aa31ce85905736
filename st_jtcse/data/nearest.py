"""The nearest of many vectors by faiss: nearly all of them, in far less time than comparing each
with every other.
"""

from __future__ import annotations

from importlib.util import find_spec
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from st_jtcse.errors import UserError

# So many texts are compared each with every other.
EXACT = 100_000
# Cells of the index that a vector's neighbours are looked for in; docs/scale.md says what that
# finds.
_PROBES = 16
# What faiss learns the cells from: rounds of k-means, over so many vectors for each cell at most.
_ROUNDS, _OF_A_CELL = 10, 256


def needs_index(texts: int, exact: int = EXACT) -> bool:
    """Return whether so many texts, more than `exact`, are compared by an index; UserError where
    faiss is missing.

    Whether it is installed does not decide how they are compared: a recipe gives the same result
    everywhere.
    """
    if texts > exact and find_spec("faiss") is None:
        raise UserError(
            f"The nearest neighbours of more than {exact:,} texts, here {texts:,}, are found by "
            "faiss, which is not installed; install it with: pip install 'st-jtcse[index]'."
        )
    return texts > exact


def comparisons(texts: int, processes: int = 1, exact: int = EXACT) -> float:
    """Return how many pairs of vectors each of some processes compares to find the nearest of
    every text: with all others, each a share, or as faiss does, where each process builds the index
    and searches a share.
    """
    if texts <= exact:
        return texts**2 / processes
    cells = isqrt(texts)
    learnt = _ROUNDS * min(texts, _OF_A_CELL * cells) * cells
    put = texts * cells
    looked_up = texts * (cells + _PROBES * texts / cells)
    return learnt + put + looked_up / processes


def index_of(unit: npt.NDArray[np.float32]) -> Any:
    """Return faiss's index of unit vectors by cosine, in about as many cells as each of them holds;
    the seed is fixed.

    ``index.search(queries, k)`` gives cosines and rows, nearest first; where the cells hold fewer
    than k, rows of -1.
    """
    import faiss

    index: Any = faiss.index_factory(
        unit.shape[1], f"IVF{isqrt(len(unit))},Flat", faiss.METRIC_INNER_PRODUCT
    )
    index.cp.spherical = True
    index.nprobe = _PROBES
    index.train(unit)
    index.add(unit)
    return index
