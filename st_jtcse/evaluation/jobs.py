"""What is run once: an MTEB task, or a set of SentEval."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from scipy.stats import DegenerateDataWarning
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

from st_jtcse.errors import UserError
from st_jtcse.evaluation.models import Evaluated
from st_jtcse.evaluation.record import Record
from st_jtcse.evaluation.senteval_data import PAIRED, STSSet, TransferSet, load_sts, load_transfer
from st_jtcse.evaluation.senteval_sts import SentEvalSTSEvaluator
from st_jtcse.evaluation.senteval_transfer import SentEvalTransferEvaluator
from st_jtcse.evaluation.unavailable import DataUnavailable


class Context:
    """The model as the protocols want it.

    Args:
        evaluated: The loaded model.
        batch_size: Texts encoded at once.
    """

    def __init__(self, evaluated: Evaluated, batch_size: int) -> None:
        self.evaluated = evaluated
        self.batch_size = batch_size

    @cached_property
    def encoder(self) -> Any:
        """MTEB's view of the model; it remembers vectors from task to task."""
        from st_jtcse.evaluation.mteb_models import UniqueTextEncoder

        return UniqueTextEncoder(self.evaluated.model, self.evaluated.name)


class Job(Protocol):
    """Something to run once."""

    def run(self, context: Context) -> Record:
        """Evaluate the model.

        Raises:
            DataUnavailable: The data cannot be had.
            UserError: The model's embeddings cannot be used.
        """

    def is_covered_by(self, record: Record) -> bool:
        """Whether an earlier run gave all that this one would, from the same data."""


class MTEBJob:
    """One MTEB task; the arguments are those of :class:`st_jtcse.evaluation.mteb_tasks.Task`."""

    def __init__(
        self,
        name: str,
        subsets: Sequence[str] | None,
        splits: Sequence[str] | None,
        *,
        pairs: str | None,
        folder: Path | None,
    ) -> None:
        # After the cheap answers: MTEB takes seconds to import.
        from st_jtcse.evaluation.mteb_tasks import Task

        self._task = Task(name, subsets, splits, pairs=pairs, folder=folder)

    def run(self, context: Context) -> Record:
        """Evaluate the model."""
        began = time.perf_counter()
        scores = self._task.run(context.encoder, context.batch_size)
        task = self._task
        return Record(task.source, task.sha256, task.main_score, scores, round(time.perf_counter() - began, 1))

    def is_covered_by(self, record: Record) -> bool:
        """Whether an earlier run gave all that this one would, from the same data."""
        task = self._task
        wanted = {(split, subset) for split in task.splits for subset in task.subsets}
        found = {(split, subset) for split, subsets in record.scores.items() for subset in subsets}
        return wanted <= found and record.data == (task.sha256 or task.source)


class STSJob:
    """One STS set by SentEval's protocol.

    Args:
        name: The set.
        folder: Local data.
    """

    metric = "spearman_all"

    def __init__(self, name: str, folder: Path | None) -> None:
        self._found = _load(load_sts, name, folder)

    def run(self, context: Context) -> Record:
        """Evaluate the model."""
        found: STSSet = _available(self._found)
        evaluator = SentEvalSTSEvaluator(found.subsets, batch_size=context.batch_size)
        return _evaluated(evaluator, self.metric, found, context)

    def is_covered_by(self, record: Record) -> bool:
        """Whether an earlier run gave all that this one would, from the same data."""
        return not isinstance(self._found, DataUnavailable) and record.sha256 == self._found.sha256


class TransferJob:
    """One transfer set by SentEval's protocol.

    Args:
        name: The set.
        folder: Local data.
    """

    metric = "accuracy"

    def __init__(self, name: str, folder: Path | None) -> None:
        self._found = _load(load_transfer, name, folder)
        if isinstance(self._found, TransferSet):
            try:
                self._evaluator = SentEvalTransferEvaluator(self._found.splits, report_f1=name in PAIRED)
            except ValueError as error:
                raise UserError(f"{self._found.source}: {error}") from error

    def run(self, context: Context) -> Record:
        """Evaluate the model."""
        found: TransferSet = _available(self._found)
        self._evaluator.batch_size = context.batch_size
        return _evaluated(self._evaluator, self.metric, found, context)

    def is_covered_by(self, record: Record) -> bool:
        """Whether an earlier run gave all that this one would, from the same data."""
        return not isinstance(self._found, DataUnavailable) and record.sha256 == self._found.sha256


def _load(load: Any, name: str, folder: Path | None) -> Any:
    """Return the set, or why it cannot be had: that is told when its turn comes, the others run."""
    try:
        return load(name, folder)
    except DataUnavailable as reason:
        return reason


def _available(found: Any) -> Any:
    if isinstance(found, DataUnavailable):
        raise found
    return found


def _evaluated(evaluator: SentenceEvaluator, main_score: str, found: STSSet | TransferSet, context: Context) -> Record:
    began = time.perf_counter()
    with warnings.catch_warnings():
        # Of one embedding for all texts; the runner says so.
        warnings.simplefilter("ignore", DegenerateDataWarning)
        found_metrics: Any = evaluator(context.evaluated.model)
    metrics = {name: value for name, value in found_metrics.items() if math.isfinite(value)}
    seconds = round(time.perf_counter() - began, 1)
    return Record(found.source, found.sha256, main_score, {"test": {"default": metrics}}, seconds)
