"""Closed-form maps that make a model search better, chosen by the text alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from st_jtcse.data.known_items import KnownItems
from st_jtcse.errors import UserError
from st_jtcse.evaluation.searching import SUMMED, Ranking, search_of
from st_jtcse.evaluation.unique_texts import Vectors
from st_jtcse.modules.closed_forms import AffineMap, Moments, merged, regression, scaled_axes

START = "start"
# Of the mean variance, what each axis gets on top before it is scaled.
_RIDGE = 0.1
_NEAREST = 10
# Queries that are compared at a time.
_QUERIES = 64
# Of which queries can be made: from fewer nothing can be told.
FEWEST = 50
# The share of the start's ten nearest that a candidate keeps at least, x 100.
LEAST_STAYS = 70.0


@dataclass(frozen=True)
class Way:
    """How to fit a candidate's maps.

    Args:
        exponent: Of the passages' variances, by which their axes are scaled.
        centred: The share of the passages' mean that is subtracted.
        ridge: λ of the regression from queries to their passages, as a share of the queries; None
            for no regression.
    """

    exponent: float
    centred: float
    ridge: float | None

    @property
    def name(self) -> str:
        """What to call it."""
        told = f"axes {self.exponent:g}, centred {self.centred:g}"
        if self.ridge is None:
            return told
        return f"{told}, queries {self.ridge:g}"

    def fit(
        self, passages: Vectors, queries: Vectors, targets: npt.NDArray[np.int64]
    ) -> list[AffineMap]:
        """Fit it on unit vectors; a query's target is the place of its passage."""
        moments = Moments()
        moments.add(passages)
        scaled = scaled_axes(moments, self.exponent, _RIDGE)
        first = AffineMap(scaled.matrix, self.centred * scaled.bias)
        if self.ridge is None:
            return [first]
        pairs = Moments()
        pairs.add(first(queries), first(passages[targets]))
        second = regression(pairs, self.ridge * len(queries), towards_identity=True)
        return merged([first, second])


# The gentlest first: of equals the first is taken. Stronger scaling finds more known items, and
# less of what people ask for (docs/search.md).
WAYS = (Way(-0.06, 1.0, 0.1), Way(-0.06, 1.0, 0.03))


@dataclass(frozen=True)
class Entry:
    """A candidate, and what held-out queries say of it; figures are x 100.

    Args:
        name: What to call it.
        maps: Its maps.
        known: MRR@10 of the passages that queries are made of.
        unseen: MRR of passages that queries are sentences of, which are cut out of them.
        agreement: The share of the ten nearest that the start and BM25 together find too.
        stays: The share of the ten nearest that are the start's.
    """

    name: str
    maps: list[AffineMap]
    known: float
    unseen: float
    agreement: float
    stays: float


def compete(
    vectors: Vectors,
    queries: Vectors,
    rests: Vectors,
    items: KnownItems,
    texts: Sequence[str],
    ways: Sequence[Way] = WAYS,
) -> list[Entry]:
    """Fit maps on half of the queries, and measure them on the other half; the start comes first.

    Args:
        vectors: Unit vectors of passages, (n, H).
        queries: Those of the queries, (m, H).
        rests: Those of the queries' passages without them, (m, H); zeros where there is none.
        items: The queries and their passages.
        texts: The passages.
        ways: How to fit the candidates.

    Raises:
        UserError: bm25s is not installed.
    """
    first, second = items.halves()
    known = search_of(items.of(second).over(texts), "known items")
    before = known.searched(queries[second], vectors)
    if SUMMED not in before:
        raise UserError(
            "Maps for search are chosen beside BM25, found no bm25s. "
            "pip install 'st-jtcse[search]'."
        )
    cut = [at for at in second if items.rests[at]]
    places, targets = np.array(items.passages)[cut], np.array(items.of(first).passages)
    entries = []
    for name, maps in _candidates(ways, vectors, queries[first], targets).items():
        mapped, asked, without = (_through(maps, each) for each in (vectors, queries, rests))
        found = known.searched(asked[second], mapped, lexical=False)[""]
        reached = 100 * found.means["mrr@10"]
        unseen = 100 * _found_without(asked[cut], without[cut], mapped, places)
        shared = _shared(found, before[SUMMED]), _shared(found, before[""])
        entries.append(Entry(name, maps, reached, unseen, *shared))
    return entries


def _candidates(
    ways: Sequence[Way], vectors: Vectors, queries: Vectors, targets: npt.NDArray[np.int64]
) -> dict[str, list[AffineMap]]:
    """Return the maps to compare, by name."""
    found: dict[str, list[AffineMap]] = {START: []}
    for way in ways:
        found[way.name] = way.fit(vectors, queries, targets)
    return found


def _through(maps: Sequence[AffineMap], vectors: Vectors) -> Vectors:
    for each in maps:
        vectors = each(vectors)
    return vectors


def chosen(entries: Sequence[Entry]) -> Entry:
    """Return the best candidate of those that no opinion speaks against.

    Queries whose words their passages hold flatter whatever sharpens single texts, such as
    whitening. So sentences choose that are cut out of their passages, and a candidate is admitted
    that finds the other known items as well as the start, and as much as it of what the start and
    BM25 find together, which it does not when it leaves what both know. The start stays where none
    is better.

    Args:
        entries: The candidates, the start first.
    """
    start = entries[0]
    admitted = [
        entry
        for entry in entries[1:]
        if entry.known >= start.known
        and entry.agreement >= start.agreement
        and entry.stays >= LEAST_STAYS
    ]
    return max([start, *admitted], key=lambda entry: entry.unseen)


def _found_without(
    queries: Vectors, rests: Vectors, passages: Vectors, places: npt.NDArray[np.int64]
) -> float:
    """Return the mean of 1 / rank of passages, each as it is without its query."""
    found = []
    for at in range(0, len(queries), _QUERIES):
        rows = slice(at, at + _QUERIES)
        scores = queries[rows] @ passages.T
        own = np.einsum("qh,qh->q", queries[rows], rests[rows])
        scores[np.arange(len(own)), places[rows]] = own
        found.append(1 / (1 + (scores > own[:, None]).sum(axis=1)))
    if found:
        return float(np.concatenate(found).mean())
    return 0.0


def _shared(one: Ranking, other: Ranking) -> float:
    """Return the share of the ten nearest that two searches have in common, x 100."""
    pairs = one.found[:, :_NEAREST, None] == other.found[:, None, :_NEAREST]
    return 100 * float(pairs.any(axis=2).mean())
