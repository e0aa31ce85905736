"""SentEval's sets from a local folder or the Hub, each something to run once."""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from scipy.stats import DegenerateDataWarning

from st_jtcse.data import Source
from st_jtcse.data.rows import Row, checked_rows, number, texts_of
from st_jtcse.errors import DataUnavailable, UserError
from st_jtcse.evaluation.jobs import Context
from st_jtcse.papers.evaluation import senteval_files
from st_jtcse.papers.evaluation.senteval_sts import SentEvalSTSEvaluator
from st_jtcse.papers.evaluation.senteval_transfer import LabelledTexts, SentEvalTransferEvaluator
from st_jtcse.records import TaskRecord

STS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICKR")
# The splits of each transfer set. MRPC has pairs, the others single texts; TREC has question types,
# written as text or number, and the others have the classes 0 and 1.
TRANSFER = {
    "MR": ("all",),
    "CR": ("all",),
    "SUBJ": ("all",),
    "MPQA": ("all",),
    "SST2": ("train", "dev", "test"),
    "TREC": ("train", "test"),
    "MRPC": ("train", "test"),
}

Content = TypeVar("Content")


@dataclass(frozen=True)
class EvaluationSet:
    """A set that was found."""

    # First sentences, second sentences and scores by subset; or LabelledTexts by split.
    content: dict[str, Any]
    source: str  # where it was read; of local files the names
    sha256: str  # hash of its rows


def main_metric(name: str) -> str:
    """Return the metric that the papers report of a set."""
    return "spearman_all" if name in STS else "accuracy"


class SentEvalJob:
    """One set by SentEval's protocol; raises as `load_sts` does."""

    def __init__(self, name: str, folder: Path | None, *, hub: bool = True) -> None:
        self._metric = main_metric(name)
        load = load_sts if name in STS else load_transfer
        found = load(name, folder, hub=hub)
        self._source, self.data = found.source, found.sha256
        evaluator: Any = SentEvalSTSEvaluator
        if name in TRANSFER:
            evaluator = partial(SentEvalTransferEvaluator, report_f1=name == "MRPC")
        try:
            self._evaluator = evaluator(found.content)
        except UserError as error:
            raise UserError(f"{found.source}: {error}") from None

    def run(
        self, context: Context, earlier: TaskRecord | None, keep: Callable[[TaskRecord], object]
    ) -> TaskRecord:
        """Evaluate the model, unless an earlier run did."""
        if earlier is not None:
            return earlier
        self._evaluator.batch_size = context.batch_size
        began = time.perf_counter()
        with warnings.catch_warnings():
            # Of one embedding for all texts; then there is no score, which is told.
            warnings.simplefilter("ignore", DegenerateDataWarning)
            found: dict[str, float] = self._evaluator(context.evaluated.model)
        metrics = {name: value for name, value in found.items() if math.isfinite(value)}
        seconds = round(time.perf_counter() - began, 1)
        return TaskRecord(
            source=self._source,
            sha256=self.data,
            main_score=self._metric,
            scores={"test": {"default": metrics}},
            seconds=seconds,
        )


def load_sts(name: str, folder: Path | None, *, hub: bool = True) -> EvaluationSet:
    """Read a set of graded pairs: from JSONL files in a folder, from SentEval's own files in it, or
    from the Hub.

    The folder holds ``sts/NAME.test.jsonl`` with the columns sentence1, sentence2, score and
    optionally subset, or SentEval's ``downstream``. Raises UserError for a faulty file,
    DataUnavailable where the Hub cannot be reached or was not asked for.
    """
    path = None if folder is None else folder / "sts" / f"{name.lower()}.test.jsonl"
    if path is not None and path.is_file():
        rows, source = _sts_rows(path), path.name
    else:
        rows, source = _from_own_files(name, senteval_files.read_sts, folder, hub)
    columns = {subset: tuple(map(list, zip(*triples))) for subset, triples in rows.items()}
    return EvaluationSet(columns, source, _sha256(rows))


def load_transfer(name: str, folder: Path | None, *, hub: bool = True) -> EvaluationSet:
    """Read a transfer set: from JSONL files in a folder, from SentEval's own files in it, or from
    the Hub.

    The folder holds ``transfer/NAME.jsonl``, or a file ``transfer/NAME.SPLIT.jsonl`` for each
    split, with the columns text (for pairs sentence1 and sentence2) and label; or SentEval's
    ``downstream``. Raises as `load_sts` does.
    """
    files: dict[str, Path] = {}
    if folder is not None:
        for split in TRANSFER[name]:
            end = "jsonl" if split == "all" else f"{split}.jsonl"
            files[split] = folder / "transfer" / f"{name.lower()}.{end}"
    there = [path for path in files.values() if path.is_file()]
    if there:
        for path in files.values():
            if path not in there:
                raise UserError(
                    f"{path} does not exist, but {there[0].name} does; {name} needs both."
                )
        rows = {split: _labelled_rows(name, path) for split, path in files.items()}
        source = ", ".join(path.name for path in there)
    else:
        rows, source = _from_own_files(name, senteval_files.read_transfer, folder, hub)
    hashed = _sha256({split: [own.columns, own.labels] for split, own in rows.items()})
    return EvaluationSet(rows, source, hashed)


def _from_own_files(
    name: str,
    parse: Callable[[str, senteval_files.Read], Content | None],
    folder: Path | None,
    hub: bool,
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


def _fault(row: Row, expected: str, column: str, found: Any) -> UserError:
    return UserError(
        f"{row.place}: expected {expected} in {column!r}, found {found!r}; correct the row."
    )


def _sts_rows(path: Path) -> dict[str, senteval_files.Rows]:
    whole = path.name.split(".")[0]
    subsets: dict[str, senteval_files.Rows] = {}

    def parse(row: Row, columns: Sequence[str]) -> None:
        first, second = texts_of(row, columns[:2])
        score, subset = number(row.values["score"]), row.values.get("subset", whole)
        if score is None or not 0 <= score <= 5:
            raise _fault(row, "a score of 0 to 5", "score", row.values["score"])
        if not isinstance(subset, str):
            raise _fault(row, "a name", "subset", subset)
        subsets.setdefault(subset, []).append((first, second, score))

    list(
        checked_rows(
            [Source(file=path)], "graded pairs", ("sentence1", "sentence2", "score"), parse, hint=""
        )
    )
    for subset, pairs in subsets.items():
        if len({score for _, _, score in pairs}) < 2:
            raise UserError(
                f"{path}: the scores of {subset!r} are all equal, so nothing can be ranked; grade "
                "the pairs."
            )
    return subsets


def _labelled_rows(name: str, path: Path) -> LabelledTexts:
    labels: list[Any] = []

    def parse(row: Row, columns: Sequence[str]) -> tuple[str, ...]:
        texts, label = texts_of(row, columns[:-1]), row.values["label"]
        if wanted := _wanted(name, label, labels):
            raise _fault(row, wanted, "label", label)
        labels.append(label)
        return texts

    columns = ("sentence1", "sentence2", "label") if name == "MRPC" else ("text", "label")
    rows = list(checked_rows([Source(file=path)], "labelled texts", columns, parse, hint=""))
    return LabelledTexts(tuple(map(list, zip(*rows))), labels)


def _wanted(name: str, label: Any, earlier: Sequence[Any]) -> str | None:
    """Return what a set's label should be; None where it is."""
    is_number = isinstance(label, int) and not isinstance(label, bool)
    if name != "TREC":
        if is_number and label in (0, 1):
            return None
        return "0 or 1"
    if not is_number and not (isinstance(label, str) and label):
        return "a class, as text or a whole number"
    if earlier and type(label) is not type(earlier[0]):
        return f"a class of the same kind as {earlier[0]!r}"
    return None


def _sha256(rows: Any) -> str:
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
