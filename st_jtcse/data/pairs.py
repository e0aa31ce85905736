"""Sentence pairs with a score: graded ones for evaluation, and those of a corpus that were judged
beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from reprlib import repr as brief

from st_jtcse.data.column_names import GRADED
from st_jtcse.data.rows import Row, Source, checked_rows, in_range, number, rows_sha256, texts_of
from st_jtcse.errors import UserError

_Pair = tuple[str, str, float]


@dataclass(frozen=True)
class Pairs:
    """Graded pairs."""

    sentences1: list[str]
    sentences2: list[str]
    scores: list[float]  # similarity, in the given range
    sha256: str  # hash of the pairs as JSON lines


@dataclass(frozen=True)
class PairScores:
    """Judged pairs, e.g. by a language model."""

    # Two sentences and their similarity in [0, 1]; each pair once, whichever sentence comes first
    pairs: list[tuple[str, str, float]]
    sha256: str  # hash of the pairs as JSON lines


def load_pairs(source: Source, score_range: tuple[float, float]) -> Pairs:
    """Read graded pairs.

    Args:
        source: Where to read; its columns are [first, second, score].
        score_range: Lowest and highest score allowed.

    Raises:
        UserError: The source is missing or faulty; up to five rows are named.
    """

    def parse(row: Row, names: Sequence[str]) -> _Pair:
        first, second = texts_of(row, names[:2])
        given = row.values[names[2]]
        if (score := number(given)) is None:
            raise UserError(
                f"{row.place}: expected a number in {names[2]!r}, found {brief(given)}; correct "
                "the row."
            )
        return first, second, in_range(row, score, score_range)

    rows = _three_columns(source, "pairs", parse)
    if len(rows) < 2:
        raise UserError(
            f"{source.label} holds {len(rows)} pairs; a rank correlation needs at least 2."
        )
    first, second, scores = zip(*rows)
    if len(set(scores)) == 1:
        raise UserError(
            f"{source.label}: every score is {scores[0]:g}, so nothing can be ranked; grade the "
            "pairs."
        )
    return Pairs(list(first), list(second), list(scores), rows_sha256(rows))


def load_pair_scores(source: Source, sentences: Collection[str]) -> PairScores:
    """Read judged pairs of a corpus.

    Args:
        source: Where to read; its columns are [first, second, score].
        sentences: The corpus.

    Raises:
        UserError: The source is missing or faulty, names a sentence that the corpus has not, or
            gives a pair two scores; up to five rows are named.
    """
    known = set(sentences)
    seen: dict[frozenset[str], tuple[float, str]] = {}

    def parse(row: Row, names: Sequence[str]) -> _Pair | None:
        given = row.values[names[2]]
        if (score := number(given)) is None or not 0 <= score <= 1:
            raise UserError(
                f"{row.place}: expected a score in [0, 1], found {brief(given)}; correct the row."
            )
        first, second = texts_of(row, names[:2])
        for name, text in zip(names, (first, second)):
            if text not in known:
                raise UserError(
                    f"{row.place}: {name!r} is not a sentence of the training data; remove the "
                    "row, or score that data."
                )
        earlier, place = seen.setdefault(frozenset((first, second)), (score, row.place))
        if earlier != score:
            raise UserError(
                f"{row.place}: the pair has the score {score:g} here and {earlier:g} at {place}; "
                "keep one."
            )
        if place == row.place:
            return (first, second, score)
        return None

    pairs = _three_columns(source, "judged pairs", parse)
    return PairScores(pairs, rows_sha256(pairs))


def _three_columns(
    source: Source, what: str, parse: Callable[[Row, Sequence[str]], _Pair | None]
) -> list[_Pair]:
    return list(checked_rows([source], what, columns_of_pairs(source, what), parse))


def columns_of_pairs(source: Source, what: str) -> tuple[str, ...]:
    """Return the three columns of pairs, which messages call `what`; raises UserError where the
    source names more or fewer.
    """
    columns = source.columns or GRADED
    if len(columns) != 3:
        raise UserError(
            f"{source.label}: 'columns' of {what} are [first, second, score], found "
            f"{list(columns)}."
        )
    return columns
