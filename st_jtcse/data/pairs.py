"""Graded sentence pairs for evaluation."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from st_jtcse.data.rows import Row, Source, check_columnar, columns_of, read_rows
from st_jtcse.errors import UserError

COLUMNS = ("sentence1", "sentence2", "score")
_TOLD = 5


@dataclass
class Pairs:
    """Graded pairs.

    Args:
        sentences1: First sentences.
        sentences2: Second sentences.
        scores: Similarity, in the given range.
        sha256: Hash of the pairs as JSON lines.
    """

    sentences1: list[str] = field(default_factory=list)
    sentences2: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    sha256: str = ""


def load_pairs(source: Source, score_range: tuple[float, float]) -> Pairs:
    """Read graded pairs.

    Args:
        source: Where to read; its columns are [first, second, score].
        score_range: Lowest and highest score allowed.

    Returns:
        The pairs.

    Raises:
        UserError: The source is missing or faulty; up to five rows are named.
    """
    columns = source.columns or COLUMNS
    if len(columns) != 3:
        raise UserError(f"{source.label}: 'columns' of pairs are [first, second, score], found {list(columns)}.")
    check_columnar(source, "pairs")
    pairs, digest, faults = Pairs(), hashlib.sha256(), []
    for row in read_rows(source):
        missing = [name for name in columns if name not in row.values]
        if missing:
            raise UserError(
                f"{row.place}: expected the columns {', '.join(columns)}, found {columns_of(row)}; add {missing[0]!r} "
                "or name the columns with 'columns'."
            )
        fault = _fault(row, columns, score_range)
        if fault:
            faults.append(fault)
            continue
        first, second = (str(row.values[name]).strip() for name in columns[:2])
        score = float(row.values[columns[2]])
        digest.update(json.dumps([first, second, score]).encode() + b"\n")
        pairs.sentences1.append(first)
        pairs.sentences2.append(second)
        pairs.scores.append(score)
    if faults:
        raise UserError(*told(faults, source.label))
    if len(pairs.scores) < 2:
        raise UserError(f"{source.label} holds {len(pairs.scores)} pairs; a rank correlation needs at least 2.")
    if len(set(pairs.scores)) == 1:
        raise UserError(
            f"{source.label}: every score is {pairs.scores[0]:g}, so nothing can be ranked; grade the pairs."
        )
    pairs.sha256 = digest.hexdigest()
    return pairs


def text_fault(row: Row, columns: Sequence[str]) -> str | None:
    """Say what is wrong with a row's texts, None if nothing is.

    Args:
        row: The row.
        columns: Its text columns.
    """
    for name in columns:
        text = row.values[name]
        if not isinstance(text, str):
            return f"{row.place}: expected text in {name!r}, found {text!r}; correct the row."
        if not text.strip():
            return f"{row.place}: {name!r} is empty; fill it or remove the row."
    return None


def number(value: Any) -> float | None:
    """Read a finite number, written as one or as text; None if it is none.

    Args:
        value: The cell.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def told(faults: Sequence[str], label: str) -> list[str]:
    """Return the first faults, and how many more there are.

    Args:
        faults: A sentence a faulty row.
        label: The source's name.
    """
    more = [f"{label}: and {len(faults) - _TOLD} more rows like these."] if len(faults) > _TOLD else []
    return [*faults[:_TOLD], *more]


def _fault(row: Row, columns: Sequence[str], score_range: tuple[float, float]) -> str | None:
    if fault := text_fault(row, columns[:2]):
        return fault
    score, (low, high) = number(row.values[columns[2]]), score_range
    if score is None:
        return f"{row.place}: expected a number in {columns[2]!r}, found {row.values[columns[2]]!r}; correct the row."
    if not low <= score <= high:
        return (
            f"{row.place}: the score {score:g} is outside {low:g} to {high:g}; correct it or set the range "
            "(evaluate.score_range, --score-range)."
        )
    return None
