"""Maps fitted on a text's vectors, step by step: each sees what those before made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from st_jtcse.data.neighbours import TOPIC_NEIGHBOURS, neighbourhood_means, topic_weight
from st_jtcse.errors import UserError
from st_jtcse.modules.closed_forms import (
    AffineMap,
    Moments,
    Vectors,
    centring,
    merged,
    regression,
    scaled_axes,
    unit_rows,
    without_mean_direction,
    without_top,
)

# A tenth of a hundred may be held out.
FEWEST = 90
# Rows that are read and mapped at once.
_CHUNK = 10_000


@dataclass(frozen=True, eq=False)
class Text:
    """A text's vectors as the maps fitted so far leave them.

    Args:
        vectors: (n, H); an array, also one mapped from a file, or a column that is cut like one.
        maps: The maps so far.
        anchors: Vectors of general sentences, (m, H), or None.
    """

    vectors: Any
    maps: Sequence[AffineMap] = ()
    anchors: npt.NDArray[Any] | None = None

    def batches(self) -> Iterator[Vectors]:
        """Yield unit vectors, some rows at a time."""
        for start in range(0, len(self.vectors), _CHUNK):
            yield self.mapped(checked(self.vectors[start : start + _CHUNK], start))

    def some(self, most: int) -> Vectors:
        """Return the unit vectors of at most so many rows, spread evenly."""
        step = max(1, -(-len(self.vectors) // most))
        return self.mapped(checked(self.vectors[::step], 0, step))

    def mapped(self, vectors: npt.NDArray[Any]) -> Vectors:
        """Return vectors as the maps so far leave them."""
        for each in self.maps:
            vectors = each(vectors)
        return unit_rows(vectors.astype(np.float64)).astype(np.float32)

    def moments(self) -> Moments:
        """Return the sums over all rows, without anchors."""
        moments = Moments()
        for batch in self.batches():
            moments.add(batch)
        return moments


class Step(Protocol):
    """One of the steps below, or another."""

    def fit(self, text: Text) -> AffineMap:
        """Return the map that the step adds."""


@dataclass(frozen=True)
class Centred:
    """:func:`centring`."""

    def fit(self, text: Text) -> AffineMap:
        """Subtract the mean."""
        return centring(text.moments())


@dataclass(frozen=True)
class WithoutMeanDirection:
    """:func:`without_mean_direction`."""

    def fit(self, text: Text) -> AffineMap:
        """Subtract the projection on the mean."""
        return without_mean_direction(text.moments())


@dataclass(frozen=True)
class WithoutTop:
    """:func:`without_top`.

    Args:
        count: The number of axes.
    """

    count: int

    def fit(self, text: Text) -> AffineMap:
        """Subtract the mean and the strongest axes."""
        return without_top(text.moments(), self.count)


@dataclass(frozen=True)
class ScaledAxes:
    """:func:`scaled_axes`.

    Args:
        exponent: a.
        ridge: ε.
    """

    exponent: float
    ridge: float = 1e-3

    def fit(self, text: Text) -> AffineMap:
        """Scale the axes."""
        return scaled_axes(text.moments(), self.exponent, self.ridge)


@dataclass(frozen=True)
class Drawn:
    """The :func:`regression` of a text's vectors on :func:`neighbourhood_means`, towards the
    identity.

    Args:
        count: How many neighbours.
        weight: The neighbours' share of the target; None: :func:`topic_weight` says it.
        ridge: λ.
        anchors: How much the anchors weigh together, as a share of all rows; their targets are
            themselves.
        most: Of more rows, so many that are spread evenly.
    """

    count: int = 20
    weight: float | None = 0.5
    ridge: float = 1.0
    anchors: float = 0.0
    most: int = 20_000

    def fit(self, text: Text) -> AffineMap:
        """Fit the map that draws vectors to their neighbours."""
        vectors, weight = text.some(self.most), self.weight
        if weight is None:
            weight = topic_weight(vectors, TOPIC_NEIGHBOURS)
        moments = Moments()
        moments.add(vectors, neighbourhood_means(vectors, self.count, weight))
        if self.anchors:
            if text.anchors is None:
                raise UserError("Anchors have a share of the rows, and there are none; give some.")
            anchors = text.mapped(checked(text.anchors))
            share = self.anchors / (1 - self.anchors)
            moments.add(anchors, weight=share * len(vectors) / len(anchors))
        return regression(moments, self.ridge, towards_identity=True)


@dataclass(frozen=True, eq=False)
class Towards:
    """The :func:`regression` of a text's vectors on others, such as a larger model's.

    Args:
        targets: One for each row, of any size; cut like the text's vectors.
        ridge: λ.
        towards_identity: Whether the targets stand in the coordinates of the text's vectors.
    """

    targets: Any
    ridge: float = 1.0
    towards_identity: bool = False

    def fit(self, text: Text) -> AffineMap:
        """Fit the map to the targets."""
        moments = Moments()
        for number, batch in enumerate(text.batches()):
            start = number * _CHUNK
            targets = checked(self.targets[start : start + _CHUNK], start)
            moments.add(batch, unit_rows(targets.astype(np.float64)))
        return regression(moments, self.ridge, self.towards_identity)


def fit_maps(
    vectors: Any, steps: Sequence[Step], anchors: npt.NDArray[Any] | None = None
) -> list[AffineMap]:
    """Fit maps one after the other, each on what those before it made of the vectors.

    Args:
        vectors: One vector a text, (n, H), at least 100; read in parts, so they may be mapped from
            a file.
        steps: What to fit, in this order.
        anchors: Vectors of general sentences, (m, H), for steps that hold them in their place.

    Returns:
        As few maps as do this: see :func:`merged`.

    Raises:
        UserError: A vector is zero or not finite, there are too few, or a step has no solution.

    Example:
        ::

            from st_jtcse.data.fitted_maps import Centred, Drawn, fit_maps
            from st_jtcse.modules import append_maps

            append_maps(model, fit_maps(model.encode(sentences), [Centred(), Drawn()]))
    """
    check_count(len(vectors))
    maps: list[AffineMap] = []
    for step in steps:
        maps = merged([*maps, step.fit(Text(vectors, maps, anchors))])
    return maps


def held_in_place(
    vectors: Any,
    maps: Sequence[AffineMap],
    anchors: npt.NDArray[Any],
    share: float,
    ridge: float = 1.0,
) -> AffineMap:
    """Return one linear map that does for a text what maps do, and leaves other sentences alone.

    It is the :func:`regression` of the text's vectors on those that the maps give, and of the
    anchors' on themselves, towards the identity. Maps that subtract a text's mean move every other
    text as far; a map without a bias need not.

    Args:
        vectors: The text's, (n, H); read in parts.
        maps: From H to H components.
        anchors: Vectors of general sentences, (m, H).
        share: How much the anchors weigh together, as a share of all rows.
        ridge: λ.
    """
    moments = Moments()
    for batch in Text(vectors).batches():
        moments.add(batch, apply_maps(maps, batch))
    general = Text(anchors).some(len(anchors))
    moments.add(general, weight=share / (1 - share) * len(vectors) / len(general))
    return regression(moments, ridge, towards_identity=True)


def check_count(count: int) -> None:
    """Refuse too few vectors."""
    if count < FEWEST:
        raise UserError(f"A map is fitted on {FEWEST} vectors or more, found {count}; add text.")


def apply_maps(maps: Sequence[AffineMap], vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return vectors after all maps; without any, as they are."""
    for each in maps:
        vectors = each(vectors)
    return vectors


def checked(vectors: Any, start: int = 0, step: int = 1) -> npt.NDArray[Any]:
    """Return rows as an array, refusing those without a direction; `start` and `step` say which
    rows of a text they are.
    """
    try:
        rows = np.asarray(vectors)
    except ValueError:
        lengths = sorted({len(row) for row in vectors})
        raise UserError(
            f"Expected vectors of one size, found {lengths[0]} to {lengths[-1]} components; give "
            "vectors of one model."
        ) from None
    if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.floating):
        raise UserError(
            f"Expected vectors as rows of a matrix of floats, found {rows.dtype} of shape "
            f"{rows.shape}; give one vector a text."
        )
    for fault, faulty in (
        ("is not finite", ~np.isfinite(rows).all(axis=1)),
        ("is zero, so it has no direction", ~rows.any(axis=1)),
    ):
        if faulty.any():
            row = start + step * int(np.argmax(faulty)) + 1
            raise UserError(f"Vector {row} {fault}; leave its text out.")
    return rows
