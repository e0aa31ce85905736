"""Labelled rows of several texts, for supervised losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from reprlib import repr as brief
from typing import Any

import pyarrow as pa
from datasets import Dataset

from st_jtcse.data.column_names import LABELLED, Kind
from st_jtcse.data.rows import Row, Source, checked_rows, in_range, number, rows_sha256, texts_of
from st_jtcse.errors import UserError

# More than any model has, and few enough for every kind of number.
_CLASSES = 2**31


@dataclass(frozen=True)
class Labelled:
    """Loaded rows."""

    dataset: Dataset  # the text columns, and ``label`` unless there is none
    # Rows left out, labelled -1 or "-", as SNLI marks those on which its annotators did not agree
    skipped_unlabelled: int
    sha256: str  # hash of the rows as JSON lines
    # By label, the file and line where it is met first.
    first_rows: dict[float, str]

    @property
    def modality(self) -> str:
        """``"text"``."""
        return "text"

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.dataset)

    @property
    def left_out(self) -> dict[str, int]:
        """What records say of their reading."""
        return {"unlabelled_rows_skipped": self.skipped_unlabelled}


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
        kind: ``"scores"``: graded similarity. ``"classes"``: whole numbers from 0, or for single
            texts any names, which are numbered as they are met. ``"none"``: texts only.
        score_range: Lowest and highest score allowed.
        mapping: Label as written -> number, e.g. ``{"contradiction": 0, "neutral": 1, "entailment":
            2}``.
        bins: For ``"classes"``: the labels are scores, and the class is the bin of ``score_range``,
            of this many equal ones.

    Raises:
        UserError: A source is missing or faulty (up to five rows are named), no row is left, all
            scores are equal, or they are classes.
    """
    default = LABELLED["scores" if bins else kind]
    sources = [replace(source, columns=source.expected) for source in sources]
    labels = _Labels(kind == "classes" and not bins, score_range, mapping, bins)
    rows = _rows(sources, kind, default, labels)
    if not rows:
        counted = f"{labels.skipped} are marked -1 or '-' as unlabelled"
        raise UserError(f"{sources[0].label} holds no labelled row, {counted}; label some.")
    if kind == "scores":
        labels.check_scores([row[-1] for row in rows], sources[0])
    table = pa.table(_table(rows, kind))
    return Labelled(Dataset(table), labels.skipped, rows_sha256(rows), labels.first_rows)


def _rows(
    sources: Sequence[Source], kind: Kind, default: Sequence[str], labels: _Labels
) -> list[tuple[Any, ...]]:
    if kind == "none":
        _check_texts(sources, default, 2)
        return list(checked_rows(sources, "labelled rows", default, _without_label))
    # One text and a class is what losses of a whole batch take; a score is said of two.
    _check_texts(sources, default, 1 if labels.are_classes else 2, labels=1)
    return list(checked_rows(sources, "labelled rows", default, labels.labelled))


def _table(rows: list[tuple[Any, ...]], kind: Kind) -> dict[str, pa.Array]:
    *texts, labels = zip(*rows)
    table = {f"sentence{number}": pa.array(column) for number, column in enumerate(texts, 1)}
    if kind == "scores":
        table["label"] = pa.array(labels).cast(pa.float32())
    elif kind == "classes":
        table["label"] = pa.array(labels).cast(pa.int64())
    return table


def _check_texts(
    sources: Sequence[Source], default: Sequence[str], fewest: int, labels: int = 0
) -> None:
    """Refuse sources that differ in how many texts a row has beside its labels."""
    counts = [len(source.columns or default) - labels for source in sources]
    wanted = max(fewest, counts[0])
    for source, count in zip(sources, counts):
        if count != wanted:
            texts = ", ".join((source.columns or default)[:count])
            raise UserError(f"{source.label}: expected {wanted} text columns, found {texts}.")


def _without_label(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return *texts_of(row, names), None


@dataclass
class _Labels:
    """How the labels of :func:`load_labelled` are written, and what was met of them."""

    are_classes: bool
    score_range: tuple[float, float]
    mapping: Mapping[str, float] | None
    bins: int | None
    # Classes by name, as they are met; None: they are numbers.
    names: dict[str, int] | None = None
    skipped: int = 0
    first_rows: dict[float, str] = field(default_factory=dict)

    def labelled(self, row: Row, names: Sequence[str]) -> tuple[Any, ...] | None:
        """Return a row's texts and its label, the last column; None where it has none."""
        given = row.values[names[-1]]
        if self.is_missing(given):
            self.skipped += 1
            return None
        cells = texts_of(row, names[:-1])
        # A class of one text may be called by a name.
        is_first = not self.first_rows and self.mapping is None
        if len(cells) == 1 and is_first and number(given) is None:
            self.names = {}
        label = self.read(row, names[-1])
        self.first_rows.setdefault(label, row.place)
        return *cells, label

    def is_missing(self, given: Any) -> bool:
        """Whether a row is marked as having no label, which -1 is only where it cannot be one."""
        if self.mapping is not None:
            minus_one = -1 not in map(number, self.mapping)
            if given == "-":
                return "-" not in self.mapping
            return minus_one and number(given) == -1
        low, high = self.score_range
        return given == "-" or (number(given) == -1 and (self.are_classes or not low <= -1 <= high))

    def read(self, row: Row, name: str) -> float:
        """Return a row's label as training wants it."""
        given: Any = row.values[name]
        if self.mapping is not None:
            given = self._mapped(row, name, self.mapping)
        if self.names is not None:
            if given is None or not str(given).strip():
                raise UserError(f"{row.place}: {name!r} is empty; fill it or remove the row.")
            return float(self.names.setdefault(str(given).strip(), len(self.names)))
        value = number(given)
        if value is None:
            raise UserError(
                f"{row.place}: expected a number in {name!r}, found {brief(given)}; correct the "
                "row, or give mapping."
            )
        if self.are_classes:
            if not 0 <= value < _CLASSES or not math.isclose(value, round(value)):
                raise UserError(
                    f"{row.place}: expected a class, a whole number from 0, in {name!r}, found "
                    f"{value:g}; correct the row, or read the labels as scores."
                )
            return float(round(value))
        low, high = self.score_range
        share = (in_range(row, value, self.score_range) - low) / (high - low)
        if self.bins:
            return float(min(int(share * self.bins), self.bins - 1))
        return share

    def _mapped(self, row: Row, name: str, mapping: Mapping[str, float]) -> float:
        given = row.values[name]
        # As YAML and JSON write it.
        key = str(given).lower() if isinstance(given, bool) else str(given)
        if key not in mapping:
            raise UserError(
                f"{row.place}: expected one of {', '.join(mapping)} in {name!r}, found "
                f"{brief(given)}; extend mapping."
            )
        return mapping[key]

    def check_scores(self, labels: Sequence[float], source: Source) -> None:
        """Refuse scores that rank nothing, and whole numbers that end below the range, as NLI's
        classes do in 0..5.
        """
        if len(set(labels)) == 1:
            raise UserError(
                f"{source.label}: every score is the same, so nothing can be ranked; grade the "
                "pairs."
            )
        low, high = self.score_range
        scores = {low + label * (high - low) for label in labels}
        whole = all(math.isclose(score, round(score), abs_tol=1e-9) for score in scores)
        if whole and self.mapping is None and not math.isclose(max(scores), high):
            raise UserError(
                f"{source.label}: every score is a whole number and none reaches {high:g}, so they "
                f"look like classes; set score_range to [{low:g}, {max(scores):g}] if they are "
                "grades, or give mapping."
            )
