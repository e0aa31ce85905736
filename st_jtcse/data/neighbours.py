"""Vectors drawn towards their nearest neighbours, which is what a text's topics have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from datasets import Dataset, concatenate_datasets

from st_jtcse import processes
from st_jtcse.data.nearest import EXACT, comparisons, index_of, needs_index
from st_jtcse.errors import UserError
from st_jtcse.modules.closed_forms import unit_rows

Vectors = npt.NDArray[np.float32]
_Found = tuple[slice, npt.NDArray[np.integer[Any]], Vectors]
_ALL = slice(None)
# Cosine from which on two texts are copies, which would only repeat a text's own vector.
_COPY = 0.9999
# Where the share of neighbours begins to shrink, and where it is nothing: see topic_weight.
_TOPICS, _WORDINGS = 0.16, 0.20
_SAMPLE = 3000
# Rows that are compared with all at once, and the bytes of a comparison: the cosine, its negative,
# and the place that it is sorted to.
_CHUNK, _COMPARED = 1024, 4 + 4 + 8
# Vectors of a search that is only timed, and the queries of one without an index.
_TRIED, _ASKED = 20_000, 1024
# How many neighbours the share was set for.
TOPIC_NEIGHBOURS = 10


def neighbourhood_means(
    vectors: npt.NDArray[Any],
    count: int,
    weight: float,
    among: npt.NDArray[Any] | None = None,
    chunk: int = _CHUNK,
    exact: int = EXACT,
    together: bool = False,
) -> Vectors:
    r"""Mix each vector's direction with the mean of its nearest neighbours', as one step of mean
    shift does.

    With u the unit vectors, N(i) the `count` nearest others and w_ij = max(u_i · u_j, 0):

    .. math::

        m_i = \sum_{j \in N(i)} w_{ij} u_j, \qquad t_i = (1 - \alpha) u_i + \alpha
        \frac{m_i}{\|m_i\|}

    A text's copies are not its neighbours; a text without neighbours of positive cosine keeps its
    own direction.

    Args:
        vectors: One vector a text, (n, H).
        count: How many neighbours.
        weight: The neighbours' share α, 0 to 1.
        among: Vectors that the neighbours are found in, (m, H); None: the vectors themselves.
        chunk: How many rows are compared with all at once.
        exact: Of more vectors than these the neighbours are found by faiss, which may miss a few.
        together: Whether all processes of a distributed run call it, and each finds a share.

    Returns:
        Unit vectors t_i / ||t_i||, (n, H) float32.

    Raises:
        UserError: There are no more than `count` vectors, or faiss is needed and not installed.

    References:
        Fukunaga and Hostetler, The Estimation of the Gradient of a Density Function, IEEE TIT 1975.
    """
    others = _unit_of_enough(vectors if among is None else among, count)
    unit = others if among is None else unit_rows(vectors.astype(np.float32))
    mixed = np.empty_like(unit)
    nearest = _nearest_indexed if needs_index(len(unit), exact) else _nearest
    for rows, near, cosines in _found(nearest, unit, others, count, chunk, together):
        mean = unit_rows(np.einsum("bk,bkh->bh", np.maximum(cosines, 0.0), others[near]))
        own = unit[rows]
        mixed[rows] = (1 - weight) * own + weight * np.where(
            mean.any(axis=1, keepdims=True), mean, own
        )
    return unit_rows(mixed)


def topic_weight(vectors: npt.NDArray[Any], count: int, most: float = 0.5) -> float:
    r"""Return how far :func:`neighbourhood_means` may draw vectors, by how much their texts have
    topics.

    Where a text has topics its neighbours are about equally near. Where it has near-duplicates that
    mean different things, the first is far nearer than the others, and a mean would blur them. With
    c_k the mean cosine of a text and its k-th neighbour, k = `count`, and c that of any two texts:

    .. math:: d = \frac{c_1 - c_k}{1 - c}, \qquad
        \alpha = \alpha_{\max} \min\left(1, \max\left(0, \frac{0.20 - d}{0.20 - 0.16}\right)\right)

    Args:
        vectors: One vector a text, (n, H).
        count: How many neighbours.
        most: The largest weight.

    Returns:
        The weight α, 0 to `most`.

    Raises:
        UserError: There are no more than `count` vectors.
    """
    unit = _unit_of_enough(vectors, count)
    some = unit[:: -(-len(unit) // _SAMPLE)]
    ordered = np.concatenate(
        [-np.sort(-cosines, axis=1) for _, _, cosines in _nearest(some, unit, count)]
    )
    first, last = ordered.mean(axis=0)[[0, -1]]
    fall = (first - last) / (1 - float(unit.mean(axis=0) @ unit.mean(axis=0)))
    return most * float(np.clip((_WORDINGS - fall) / (_WORDINGS - _TOPICS), 0.0, 1.0))


def with_neighbourhood_means(
    dataset: Dataset, count: int, weight: float | None
) -> tuple[Dataset, float]:
    """Draw the column ``label`` towards its neighbours by :func:`neighbourhood_means`; each vector
    keeps its length.

    All processes of a distributed run call it, and each finds a share of the neighbours. A weight
    of None is :func:`topic_weight`'s. Returns the data set and the weight; raises
    UserError where there are no more than `count` rows, or faiss is needed and not installed.
    """
    vectors = dataset.with_format("numpy")["label"][:]
    if weight is None:
        # One for all, for what comes next all do together.
        weight = processes.gathered(topic_weight(vectors, count))[0]
    if not weight:
        return dataset, weight
    lengths = np.linalg.norm(vectors.astype(np.float32), axis=1, keepdims=True)
    means = neighbourhood_means(vectors, count, weight, together=True)
    half = (lengths * means).astype(np.float16)
    column = pa.FixedSizeListArray.from_arrays(pa.array(half.ravel()), half.shape[1])
    mixed = Dataset(pa.table({"label": column}))
    return concatenate_datasets([dataset.remove_columns("label"), mixed], axis=1), weight


def compared(texts: int, processes: int, *, weighed: bool) -> float:
    """Return how many pairs of vectors each of some processes compares in
    :func:`with_neighbourhood_means`; `weighed` says whether that sets the weight, which each does
    by itself.
    """
    return comparisons(texts, processes) + weighed * weighing(texts)


def weighing(texts: int) -> float:
    """Return how many pairs of vectors :func:`topic_weight` compares."""
    return float(min(texts, _SAMPLE) * texts)


def memory_of_search(texts: int, size: int, count: int) -> float:
    """Return the bytes that some rows of vectors compared with all take: the halves, the vectors
    and their means in float32, and the comparisons or the `count` neighbours that they find.
    """
    rows = min(texts, _CHUNK)
    return (2 + 4 + 4) * texts * size + max(rows * texts * _COMPARED, _drawn(rows, size, count))


def memory_of_means(texts: int, size: int, count: int, *, weighed: bool) -> float:
    """Return the bytes that :func:`with_neighbourhood_means` holds at most of vectors of so many
    components.
    """
    # The labels; in float32 the vectors, their means, and the index, which goes before the means
    # come to length 1.
    found = (2 + 4 + 4 + 4) * texts * size + _drawn(min(texts, _CHUNK), size, count)
    if weighed or texts <= EXACT:
        return max(found, memory_of_search(texts, size, count))
    return found


def _drawn(rows: int, size: int, count: int) -> float:
    """Return the bytes of some rows' neighbours and of what is made of them on the way to a
    mean.
    """
    return 4.0 * rows * size * (count + 3)


def trial_search(size: int, *, indexed: bool) -> tuple[Callable[[], Any], float]:
    """Return a search among random vectors, to be timed, and how many pairs it compares."""
    draw = np.random.default_rng(0)
    unit = unit_rows(draw.standard_normal((_TRIED, size), np.float32))
    if indexed:
        found = _nearest_indexed(unit, unit, TOPIC_NEIGHBOURS)
        return partial(list, found), comparisons(_TRIED, exact=0)
    return partial(list, _nearest(unit[:_ASKED], unit, TOPIC_NEIGHBOURS)), _ASKED * _TRIED


def _unit_of_enough(vectors: npt.NDArray[Any], count: int) -> Vectors:
    if len(vectors) <= count:
        raise UserError(
            f"The {count} nearest neighbours of a text need more than {len(vectors)} texts; add "
            "text."
        )
    return unit_rows(vectors.astype(np.float32))


def _found(
    nearest: Callable[..., Iterator[_Found]],
    unit: Vectors,
    others: Vectors,
    count: int,
    chunk: int,
    together: bool,
) -> Iterator[_Found]:
    """Yield what `nearest` finds; of several processes that work together, each finds chunks that
    are as one process would cut them.
    """
    if not together or processes.count() == 1:
        yield from nearest(unit, others, count, chunk)
        return
    part = slice(processes.rank(), None, processes.count())
    own = [
        (rows, near.astype(np.int32), cosines)
        for rows, near, cosines in nearest(unit, others, count, chunk, part)
    ]
    for found in processes.gathered(own):
        yield from found


def _nearest(
    unit: Vectors, others: Vectors, count: int, chunk: int = _CHUNK, part: slice = _ALL
) -> Iterator[_Found]:
    """Yield some rows at a time, their nearest others, (b, count), in no order, and the cosines of
    these; `part` says which of the times.
    """
    for start in range(0, len(unit), chunk)[part]:
        rows = slice(start, start + chunk)
        cosines = unit[rows] @ others.T
        # The text itself among them.
        cosines[cosines > _COPY] = -1.0
        # A copy: the rest of it, 8 bytes a comparison, would stay until the next is made.
        near = np.argpartition(-cosines, count - 1, axis=1)[:, :count].copy()
        yield rows, near, np.take_along_axis(cosines, near, axis=1)


def _nearest_indexed(
    unit: Vectors, others: Vectors, count: int, chunk: int = _CHUNK, part: slice = _ALL
) -> Iterator[_Found]:
    """Yield what :func:`_nearest` does, but for what the index misses; what is missing has a cosine
    of -1.
    """
    index = index_of(others)
    for start in range(0, len(unit), chunk)[part]:
        rows = slice(start, start + chunk)
        queries = unit[rows]
        near, cosines = (
            np.zeros((len(queries), count), np.int64),
            np.zeros((len(queries), count), np.float32),
        )
        asked, most = np.arange(len(queries)), count + 1
        while len(asked):
            found, at = index.search(queries[asked], most)
            copies = found > _COPY
            found[copies | (at < 0)] = -1.0
            best = np.argpartition(-found, count - 1, axis=1)[:, :count]
            near[asked], cosines[asked] = (
                np.take_along_axis(each, best, axis=1) for each in (at, found)
            )
            # Copies may have taken the others' places.
            asked = asked[(copies.sum(axis=1) > most - count) & (at[:, -1] >= 0)]
            most *= 4
        yield rows, near, cosines
