"""Labelled rows of several texts, for supervised losses."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from datasets import Dataset

from st_jtcse.data.pairs import number, text_fault, told
from st_jtcse.data.rows import Row, Source, check_columnar, columns_of, read_rows
from st_jtcse.errors import UserError

Kind = Literal["scores", "classes", "none"]
COLUMNS: dict[Kind, tuple[str, ...]] = {
    "scores": ("sentence1", "sentence2", "score"),
    "classes": ("sentence1", "sentence2", "label"),
    "none": ("anchor", "positive", "negative"),
}


@dataclass(frozen=True)
class Labelled:
    """Loaded rows.

    Args:
        dataset: The text columns, and ``label`` unless there is none.
        skipped_unlabelled: Rows labelled -1 or "-", as SNLI marks those on which its annotators did not agree; they
            were left out.
        sha256: Hash of the rows as JSON lines.
        first_rows: By label, the file and line where it is met first.
    """

    dataset: Dataset
    skipped_unlabelled: int
    sha256: str
    first_rows: dict[float, str]


def load_labelled(
    sources: Sequence[Source],
    kind: Kind,
    score_range: tuple[float, float],
    mapping: Mapping[str, float] | None = None,
    bins: int | None = None,
) -> Labelled:
    """Read rows of several texts with a label.

    Scores are brought from their range to 0..1, as Sentence-Transformers' losses expect them.

    Args:
        sources: Where to read; the last of a source's columns is the label, unless there is none.
        kind: ``"scores"``: graded similarity. ``"classes"``: whole numbers from 0. ``"none"``: texts only.
        score_range: Lowest and highest score allowed.
        mapping: Label as written -> number, e.g. ``{"contradiction": 0, "neutral": 1, "entailment": 2}``.
        bins: For ``"classes"``: the labels are scores, and the class is the bin of ``score_range``, of this many equal
            ones.

    Returns:
        The rows, in the order of the sources.

    Raises:
        UserError: A source is missing or faulty (up to five rows are named), no row is left, all scores are equal, or
            they are classes.
    """
    columns: list[list[str]] = []
    labels: list[float] = []
    first_rows: dict[float, str] = {}
    digest, faults, skipped = hashlib.sha256(), [], 0
    for source in sources:
        check_columnar(source, "labelled rows")
        names = source.columns or COLUMNS["scores" if bins else kind]
        texts = names if kind == "none" else names[:-1]
        columns = columns or [[] for _ in texts]
        if len(texts) != len(columns) or len(texts) < 2:
            raise UserError(f"{source.label}: expected {max(2, len(columns))} text columns, found {', '.join(texts)}.")
        for row in read_rows(source):
            _check_columns(row, names)
            if kind != "none" and _is_unlabelled(row.values[names[-1]], kind, score_range, mapping, bins):
                skipped += 1
                continue
            label = None if kind == "none" else _label(row, names[-1], kind, score_range, mapping, bins)
            fault = text_fault(row, texts) or (label if isinstance(label, str) else None)
            if fault:
                faults.append(fault)
                continue
            cells = [str(row.values[name]).strip() for name in texts]
            digest.update(json.dumps([*cells, label]).encode() + b"\n")
            for column, cell in zip(columns, cells):
                column.append(cell)
            if isinstance(label, float):
                labels.append(label)
                first_rows.setdefault(label, row.place)
    if faults:
        raise UserError(*told(faults, sources[0].label))
    if not columns[0]:
        raise UserError(
            f"{sources[0].label} holds no labelled row, {skipped} are marked -1 or '-' as unlabelled; label some."
        )
    if kind == "scores":
        _check_scores(labels, score_range, mapping is not None, sources[0])
    table = {f"sentence{number}": pa.array(column) for number, column in enumerate(columns, 1)}
    if kind != "none":
        table["label"] = pa.array(labels, pa.float32()) if kind == "scores" else pa.array(map(int, labels), pa.int64())
    return Labelled(Dataset(pa.table(table)), skipped, digest.hexdigest(), first_rows)


def _check_columns(row: Row, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in row.values]
    if missing:
        raise UserError(
            f"{row.place}: expected the columns {', '.join(names)}, found {columns_of(row)}; add {missing[0]!r} or "
            "name the columns with 'columns'."
        )


def _check_scores(labels: Sequence[float], score_range: tuple[float, float], mapped: bool, source: Source) -> None:
    """Refuse labels that rank nothing, and whole numbers that end below the range: NLI's classes 0, 1, 2 of 0..5."""
    if len(set(labels)) == 1:
        raise UserError(f"{source.label}: every score is the same, so nothing can be ranked; grade the pairs.")
    low, high = score_range
    scores = {low + label * (high - low) for label in labels}
    whole = all(math.isclose(score, round(score), abs_tol=1e-9) for score in scores)
    if whole and not mapped and not math.isclose(max(scores), high):
        raise UserError(
            f"{source.label}: every score is a whole number and none reaches {high:g}, so they look like classes; set "
            f"data.score_range to [{low:g}, {max(scores):g}] if they are grades, or give data.mapping."
        )


def _is_unlabelled(
    given: Any,
    kind: Kind,
    score_range: tuple[float, float],
    mapping: Mapping[str, float] | None,
    bins: int | None,
) -> bool:
    """Whether a row is marked as having no label, which -1 is only where it cannot be one."""
    if mapping is not None:
        return (given == "-" and "-" not in mapping) or (number(given) == -1 and -1 not in map(number, mapping))
    is_class = kind == "classes" and bins is None
    return given == "-" or (number(given) == -1 and (is_class or not score_range[0] <= -1 <= score_range[1]))


def _written(given: Any) -> str:
    """Return a label as a recipe's mapping writes it."""
    return str(given).lower() if isinstance(given, bool) else str(given)


def _label(
    row: Row,
    name: str,
    kind: Kind,
    score_range: tuple[float, float],
    mapping: Mapping[str, float] | None,
    bins: int | None,
) -> float | str:
    """Return a row's label as training wants it, or the sentence that says what is wrong with it."""
    given: Any = row.values[name]
    if mapping is not None:
        if _written(given) not in mapping:
            return (
                f"{row.place}: expected one of {', '.join(mapping)} in {name!r}, found {given!r}; extend data.mapping."
            )
        given = mapping[_written(given)]
    value = number(given)
    if value is None:
        return f"{row.place}: expected a number in {name!r}, found {given!r}; correct the row, or give data.mapping."
    if kind == "classes" and bins is None:
        if value < 0 or not math.isclose(value, round(value)):
            return (
                f"{row.place}: expected a class, a whole number from 0, in {name!r}, found {value:g}; correct the row, "
                "or set data.labels to scores."
            )
        return float(round(value))
    low, high = score_range
    if not low <= value <= high:
        return f"{row.place}: the score {value:g} is outside {low:g} to {high:g}; correct it or set data.score_range."
    share = (value - low) / (high - low)
    return share if bins is None else float(min(int(share * bins), bins - 1))
