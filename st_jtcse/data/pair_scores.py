"""Scores of sentence pairs that were judged beforehand, e.g. by a language model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass

from st_jtcse.data.pairs import COLUMNS, number, text_fault, told
from st_jtcse.data.rows import Row, Source, check_columnar, columns_of, read_rows
from st_jtcse.errors import UserError


@dataclass(frozen=True)
class PairScores:
    """Judged pairs.

    Args:
        pairs: Two sentences and their similarity in [0, 1]; each pair once, whichever sentence comes first.
        sha256: Hash of the pairs as JSON lines.
    """

    pairs: list[tuple[str, str, float]]
    sha256: str


def load_pair_scores(source: Source, sentences: Collection[str]) -> PairScores:
    """Read judged pairs of a corpus.

    Args:
        source: Where to read; its columns are [first, second, score].
        sentences: The corpus.

    Raises:
        UserError: The source is missing or faulty, names a sentence that the corpus has not, or gives a pair two
            scores; up to five rows are named.
    """
    check_columnar(source, "judged pairs")
    columns, known = source.columns or COLUMNS, set(sentences)
    seen: dict[frozenset[str], tuple[float, str]] = {}
    pairs: list[tuple[str, str, float]] = []
    digest, faults = hashlib.sha256(), []
    for row in read_rows(source):
        missing = [name for name in columns if name not in row.values]
        if missing or len(columns) != 3:
            raise UserError(
                f"{row.place}: expected two sentences and a score in the columns {', '.join(columns)}, found "
                f"{columns_of(row)}; name the three with 'columns'."
            )
        fault = _fault(row, columns, known)
        if fault:
            faults.append(fault)
            continue
        first, second = (str(row.values[name]).strip() for name in columns[:2])
        score = float(row.values[columns[2]])
        earlier, place = seen.setdefault(frozenset((first, second)), (score, row.place))
        if earlier != score:
            faults.append(f"{row.place}: the pair has the score {score:g} here and {earlier:g} at {place}; keep one.")
        elif place == row.place:
            digest.update(json.dumps([first, second, score]).encode() + b"\n")
            pairs.append((first, second, score))
    if faults:
        raise UserError(*told(faults, source.label))
    return PairScores(pairs, digest.hexdigest())


def _fault(row: Row, columns: Collection[str], known: Collection[str]) -> str | None:
    *texts, score = columns
    value = number(row.values[score])
    if value is None or not 0 <= value <= 1:
        return f"{row.place}: expected a score in [0, 1], found {row.values[score]!r}; correct the row."
    fault = text_fault(row, texts)
    if fault:
        return fault
    for name in texts:
        if str(row.values[name]).strip() not in known:
            return f"{row.place}: {name!r} is no sentence of the training data; remove the row, or score that data."
    return None
