"""SentEval's sets from a local folder or the Hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from st_jtcse.data import Source
from st_jtcse.data.rows import Row, columns_of, number, read_rows, text_fault, told
from st_jtcse.errors import UserError
from st_jtcse.evaluation import senteval_files
from st_jtcse.evaluation.jobs import DataUnavailable
from st_jtcse.evaluation.senteval_transfer import LabelledTexts

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


Content = TypeVar("Content")
# First sentences, second sentences and scores by subset; rows by split.
Subsets = dict[str, tuple[list[str], list[str], list[float]]]
Splits = dict[str, LabelledTexts]


@dataclass(frozen=True)
class EvaluationSet(Generic[Content]):
    """A set that was found."""

    content: Content  # its rows by subset or split
    source: str  # where it was read; of local files the names
    sha256: str  # hash of its rows


def load_sts(name: str, folder: Path | None, *, hub: bool = True) -> EvaluationSet[Subsets]:
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
    path = None if folder is None else folder / "sts" / f"{name.lower()}.test.jsonl"
    if path is not None and path.is_file():
        rows, source = _sts_rows(path), path.name
    else:
        rows, source = _from_own_files(name, senteval_files.read_sts, folder, hub)
    columns: Any = {subset: tuple(map(list, zip(*triples))) for subset, triples in rows.items()}
    return EvaluationSet(columns, source, _sha256(rows))


def load_transfer(name: str, folder: Path | None) -> EvaluationSet[Splits]:
    """Read a transfer set: from JSONL files in a folder, from SentEval's own files in it, or from the Hub.

    Args:
        name: One of `TRANSFER`.
        folder: Holds ``transfer/NAME.jsonl``, or a file ``transfer/NAME.SPLIT.jsonl`` for each split, with the columns
            text (for pairs sentence1 and sentence2) and label; or SentEval's ``downstream``.

    Raises:
        UserError: A file is faulty, or a split is missing beside another.
        DataUnavailable: There is no file, and the Hub cannot be reached.
    """
    files = {}
    if folder is not None:
        stem = folder / "transfer" / name.lower()
        files = {
            split: Path(f"{stem}.jsonl" if split == "all" else f"{stem}.{split}.jsonl") for split in TRANSFER[name]
        }
    there = [path for path in files.values() if path.is_file()]
    if there:
        for path in files.values():
            if path not in there:
                raise UserError(f"{path} does not exist, but {there[0].name} does; {name} needs both.")
        rows = {split: _labelled_rows(name, path) for split, path in files.items()}
        source = ", ".join(path.name for path in there)
    else:
        rows, source = _from_own_files(name, senteval_files.read_transfer, folder)
    return EvaluationSet(rows, source, _sha256({split: [own.columns, own.labels] for split, own in rows.items()}))


def _from_own_files(
    name: str, parse: Callable[[str, senteval_files.Read], Content | None], folder: Path | None, hub: bool = True
) -> tuple[Content, str]:
    """Read SentEval's own files, and say where they were."""
    if folder is not None and (found := parse(name, senteval_files.from_folder(folder))):
        return found, folder.name
    if not hub:
        raise DataUnavailable(f"{name} is not local")
    found = parse(name, senteval_files.from_hub())
    if found is None:
        raise DataUnavailable(f"{senteval_files.ARCHIVE} holds no {name}")
    return found, f"{senteval_files.REPOSITORY}/{senteval_files.ARCHIVE}"


def _sts_rows(path: Path) -> dict[str, senteval_files.Rows]:
    whole = path.name.split(".")[0]

    def fault(row: Row, _: Sequence[Row]) -> str | None:
        score, subset = number(row.values["score"]), row.values.get("subset", whole)
        if score is None or not SCORES[0] <= score <= SCORES[1]:
            return f"a score of 0 to 5 in 'score', found {row.values['score']!r}"
        return None if isinstance(subset, str) else f"a name in 'subset', found {subset!r}"

    subsets: dict[str, senteval_files.Rows] = {}
    for row in _sound_rows(path, ("sentence1", "sentence2"), "score", fault):
        pair = (row.values["sentence1"].strip(), row.values["sentence2"].strip(), float(row.values["score"]))
        subsets.setdefault(row.values.get("subset", whole), []).append(pair)
    for subset, pairs in subsets.items():
        if len({score for _, _, score in pairs}) < 2:
            raise UserError(
                f"{path}: the scores of {subset!r} are all equal, so nothing can be ranked; grade the pairs."
            )
    return subsets


def _labelled_rows(name: str, path: Path) -> LabelledTexts:
    def fault(row: Row, before: Sequence[Row]) -> str | None:
        label = row.values["label"]
        is_number = isinstance(label, int) and not isinstance(label, bool)
        if name not in MULTICLASS:
            wanted, fits = "0 or 1", is_number and label in (0, 1)
        else:
            wanted = "a class, as text or a whole number"
            fits = is_number or (isinstance(label, str) and bool(label))
            if fits and before and type(label) is not type(before[0].values["label"]):
                wanted, fits = f"a class of the same kind as {before[0].values['label']!r}", False
        return None if fits else f"{wanted} in 'label', found {label!r}"

    texts = ("sentence1", "sentence2") if name in PAIRED else ("text",)
    rows = _sound_rows(path, texts, "label", fault)
    columns = tuple([row.values[text].strip() for row in rows] for text in texts)
    return LabelledTexts(columns, [row.values["label"] for row in rows])


def _sound_rows(
    path: Path, texts: tuple[str, ...], grade: str, fault: Callable[[Row, Sequence[Row]], str | None]
) -> list[Row]:
    """Read rows; `fault` says what was expected of one after the others, and what was found."""
    rows: list[Row] = []
    faults: list[str] = []
    for row in read_rows(Source(file=path)):
        missing = [name for name in (*texts, grade) if name not in row.values]
        if missing:
            wanted = ", ".join((*texts, grade))
            raise UserError(f"{row.place}: expected the columns {wanted}, found {columns_of(row)}; add {missing[0]!r}.")
        if found := text_fault(row, texts):
            faults.append(found)
        elif found := fault(row, rows):
            faults.append(f"{row.place}: expected {found}; correct the row.")
        else:
            rows.append(row)
    if faults:
        raise UserError(*told(faults, str(path)))
    return rows


def _sha256(rows: Any) -> str:
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
