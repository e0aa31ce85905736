"""SentEval's sets from a local folder or the Hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from st_jtcse.data import Source
from st_jtcse.data.rows import Row, columns_of, number, read_rows, text_fault, told
from st_jtcse.errors import UserError
from st_jtcse.evaluation import senteval_files
from st_jtcse.evaluation.senteval_transfer import LabelledTexts
from st_jtcse.evaluation.unavailable import DataUnavailable

STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
# The splits of each transfer set.
TRANSFER = {
    "MR": ("all",),
    "CR": ("all",),
    "SUBJ": ("all",),
    "MPQA": ("all",),
    "SST2": ("train", "dev", "test"),
    "TREC": ("train", "test"),
    "MRPC": ("train", "test"),
}
# Sets of pairs; the others have single texts.
PAIRED = ("MRPC",)
# Question types, written as text or number; every other set has the classes 0 and 1.
MULTICLASS = ("TREC",)
SCORES = (0.0, 5.0)


@dataclass(frozen=True)
class STSSet:
    """One STS set.

    Args:
        subsets: First sentences, second sentences and scores by subset.
        source: Where it was read; of local files the names.
        sha256: Hash of its rows.
    """

    subsets: dict[str, tuple[list[str], list[str], list[float]]]
    source: str
    sha256: str


@dataclass(frozen=True)
class TransferSet:
    """One transfer set.

    Args:
        splits: Its rows by split.
        source: Where it was read; of local files the names.
        sha256: Hash of its rows.
    """

    splits: dict[str, LabelledTexts]
    source: str
    sha256: str


def sts_file(name: str, folder: Path) -> Path:
    """Return where a local folder has a set of graded pairs."""
    return folder / "sts" / f"{name.lower()}.test.jsonl"


def transfer_files(name: str, folder: Path) -> dict[str, Path]:
    """Return where a local folder has a transfer set's splits."""
    return {
        split: folder / "transfer" / (f"{name.lower()}.jsonl" if split == "all" else f"{name.lower()}.{split}.jsonl")
        for split in TRANSFER[name]
    }


def load_sts(name: str, folder: Path | None, *, hub: bool = True) -> STSSet:
    """Read a set of graded pairs: from JSONL files in a folder, from SentEval's own files in it, or from the Hub.

    Args:
        name: One of `STS`.
        folder: Holds ``sts/NAME.test.jsonl`` with the columns sentence1, sentence2, score and optionally subset, or
            SentEval's ``downstream``.
        hub: Whether to go on to the Hub.

    Raises:
        UserError: A file is faulty.
        DataUnavailable: There is no file, and the Hub cannot be reached or was not asked for.
    """
    if folder is not None:
        path = sts_file(name, folder)
        if path.is_file():
            return _sts_set(_sts_rows(path), path.name)
        if found := senteval_files.read_sts(name, senteval_files.from_folder(folder)):
            return _sts_set(found, folder.name)
    if not hub:
        raise DataUnavailable(f"{folder} holds no {path.relative_to(folder)}" if folder else f"{name} is not local")
    found = senteval_files.read_sts(name, senteval_files.from_hub())
    if found is None:
        raise DataUnavailable(f"{senteval_files.ARCHIVE} holds no {name}")
    return _sts_set(found, f"{senteval_files.REPOSITORY}/{senteval_files.ARCHIVE}")


def load_transfer(name: str, folder: Path | None) -> TransferSet:
    """Read a transfer set: from JSONL files in a folder, from SentEval's own files in it, or from the Hub.

    Args:
        name: One of `TRANSFER`.
        folder: Holds ``transfer/NAME.jsonl``, or a file ``transfer/NAME.SPLIT.jsonl`` for each split, with the columns
            text (for pairs sentence1 and sentence2) and label; or SentEval's ``downstream``.

    Raises:
        UserError: A file is faulty, or a split is missing beside another.
        DataUnavailable: There is no file, and the Hub cannot be reached.
    """
    if folder is not None:
        files = transfer_files(name, folder)
        there = [path for path in files.values() if path.is_file()]
        missing = [path for path in files.values() if path not in there]
        if there and missing:
            raise UserError(f"{missing[0]} does not exist, but {there[0].name} does; {name} needs both.")
        if there:
            rows = {split: _labelled_rows(name, path) for split, path in files.items()}
            return _transfer_set(rows, ", ".join(path.name for path in there))
        if found := senteval_files.read_transfer(name, senteval_files.from_folder(folder)):
            return _transfer_set(found, folder.name)
    found = senteval_files.read_transfer(name, senteval_files.from_hub())
    if found is None:
        raise DataUnavailable(f"{senteval_files.ARCHIVE} holds no {name}")
    return _transfer_set(found, f"{senteval_files.REPOSITORY}/{senteval_files.ARCHIVE}")


def _sts_rows(path: Path) -> dict[str, senteval_files.Rows]:
    subsets: dict[str, senteval_files.Rows] = {}
    faults: list[str] = []
    for row in read_rows(Source(file=path)):
        _check_columns(row, ("sentence1", "sentence2", "score"))
        fault = text_fault(row, ("sentence1", "sentence2"))
        score, subset = number(row.values["score"]), row.values.get("subset", path.name.split(".")[0])
        if not fault and (score is None or not SCORES[0] <= score <= SCORES[1]):
            fault = (
                f"{row.place}: expected a score of 0 to 5 in 'score', found {row.values['score']!r}; correct the row."
            )
        if not fault and not isinstance(subset, str):
            fault = f"{row.place}: expected a name in 'subset', found {subset!r}; correct the row."
        if fault or score is None:
            faults.append(str(fault))
            continue
        pair = (row.values["sentence1"].strip(), row.values["sentence2"].strip(), score)
        subsets.setdefault(subset, []).append(pair)
    if faults:
        raise UserError(*told(faults, str(path)))
    for subset, rows in subsets.items():
        if len({score for _, _, score in rows}) < 2:
            raise UserError(
                f"{path}: the scores of {subset!r} are all equal, so nothing can be ranked; grade the pairs."
            )
    return subsets


def _labelled_rows(name: str, path: Path) -> LabelledTexts:
    names = ("sentence1", "sentence2") if name in PAIRED else ("text",)
    columns: tuple[list[str], ...] = tuple([] for _ in names)
    labels: list[Any] = []
    faults = []
    for row in read_rows(Source(file=path)):
        _check_columns(row, (*names, "label"))
        fault = text_fault(row, names) or _label_fault(row, name, labels)
        if fault:
            faults.append(fault)
            continue
        for column, text in zip(columns, names):
            column.append(row.values[text].strip())
        labels.append(row.values["label"])
    if faults:
        raise UserError(*told(faults, str(path)))
    return LabelledTexts(columns, labels)


def _label_fault(row: Row, name: str, labels: Sequence[Any]) -> str | None:
    label = row.values["label"]
    is_number = isinstance(label, int) and not isinstance(label, bool)
    if name not in MULTICLASS:
        wanted, fits = "0 or 1", is_number and label in (0, 1)
    else:
        wanted = "a class, as text or a whole number"
        fits = is_number or (isinstance(label, str) and bool(label))
        if fits and labels and type(label) is not type(labels[0]):
            wanted, fits = f"a class of the same kind as {labels[0]!r}", False
    return None if fits else f"{row.place}: expected {wanted} in 'label', found {label!r}; correct the row."


def _check_columns(row: Row, wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in row.values]
    if missing:
        raise UserError(
            f"{row.place}: expected the columns {', '.join(wanted)}, found {columns_of(row)}; add {missing[0]!r}."
        )


def _sts_set(subsets: dict[str, senteval_files.Rows], source: str) -> STSSet:
    columns = {subset: tuple(map(list, zip(*rows))) for subset, rows in subsets.items()}
    typed: Any = columns
    return STSSet(typed, source, _sha256(subsets))


def _transfer_set(splits: dict[str, LabelledTexts], source: str) -> TransferSet:
    plain = {split: [rows.columns, rows.labels] for split, rows in splits.items()}
    return TransferSet(splits, source, _sha256(plain))


def _sha256(rows: Any) -> str:
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
