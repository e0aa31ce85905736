"""A set of SentEval as something to run once."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scipy.stats import DegenerateDataWarning
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

from st_jtcse.errors import UserError
from st_jtcse.evaluation.jobs import Context, DataUnavailable, Record
from st_jtcse.evaluation.senteval_data import PAIRED, STS, load_sts, load_transfer
from st_jtcse.evaluation.senteval_sts import SentEvalSTSEvaluator
from st_jtcse.evaluation.senteval_transfer import SentEvalTransferEvaluator


def main_metric(name: str) -> str:
    """Return the metric that the papers report of a set."""
    return "spearman_all" if name in STS else "accuracy"


class SentEvalJob:
    """One set by SentEval's protocol.

    Raises:
        UserError: The local data are faulty.
    """

    def __init__(self, name: str, folder: Path | None) -> None:
        self._metric = main_metric(name)
        self._evaluator: Any
        self._missing: DataUnavailable | None = None
        self.data: str | None = None
        try:
            if name in STS:
                pairs = load_sts(name, folder)
                self._source, self.data = pairs.source, pairs.sha256
                self._evaluator = SentEvalSTSEvaluator(pairs.content)
            else:
                rows = load_transfer(name, folder)
                self._source, self.data = rows.source, rows.sha256
                self._evaluator = _transfer_evaluator(rows.content, name, rows.source)
        except DataUnavailable as reason:  # Told when its turn comes; the other tasks run.
            self._missing = reason

    def run(self, context: Context, earlier: Record | None, keep: Callable[[Record], object]) -> Record:
        """Evaluate the model, unless an earlier run did."""
        if self._missing is not None:
            raise self._missing
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
        return Record(self._source, self.data, self._metric, {"test": {"default": metrics}}, seconds)


def _transfer_evaluator(splits: Any, name: str, source: str) -> SentenceEvaluator:
    try:
        return SentEvalTransferEvaluator(splits, report_f1=name in PAIRED)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
