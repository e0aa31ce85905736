"""What a run says of a stage: a line as it begins, one an evaluation, one as it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_jtcse.recipe.blocks import DEV
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.records import StageRecord
from st_jtcse.reports.dev_curves import loss_terms
from st_jtcse.reports.table import number
from st_jtcse.training.as_shipped import begins_as
from st_jtcse.training.forecast import duration

logger = logging.getLogger(__name__)

# Seconds that are left from which on it is said how long.
_WORTH_TELLING = 45


class StageLines(TrainerCallback):
    """Says how a stage's training begins and what each evaluation finds; what the trainer logs is
    of level DEBUG.
    """

    def __init__(self, stage: StageSpec) -> None:
        self._stage = stage
        self._loss = ""
        self._began = time.perf_counter(), 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Say what the stage starts from, its loss and its steps."""
        at = f", on from step {state.global_step}" if state.global_step else ""
        loss = self._stage.loss.type if self._stage.loss else None
        told = (self._stage.name, loss, state.max_steps, at, begins_as(self._stage.model))
        logger.info("%s: %s, %d steps%s, from %s", *told)
        self._began = time.perf_counter(), state.global_step

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Keep the loss and its terms for the next evaluation's line."""
        logs: Mapping[str, Any] = kw.get("logs") or {}
        logger.debug("%s: step %d, %s", self._stage.name, state.global_step, logs)
        if found := loss_terms(logs):
            loss, *terms = (f"{name} {value:.3g}" for name, value in found.items())
            self._loss = f", {loss} ({', '.join(terms)})" if terms else f", {loss}"

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Say how far it is, the loss, dev, and the time that is left."""
        found = dev_of(args, kw.get("metrics") or {})
        dev = "" if found is None else f", {DEV} {found:.2f}"
        left = self._left(state.global_step, state.max_steps)
        told = (self._stage.name, state.global_step, state.max_steps, self._loss, dev, left)
        logger.info("%s: step %d of %d%s%s%s", *told)

    def _left(self, step: int, steps: int) -> str:
        began, first = self._began
        if step <= first:
            return ""
        seconds = (time.perf_counter() - began) / (step - first) * (steps - step)
        return f", about {duration(seconds)} left" if seconds >= _WORTH_TELLING else ""


def dev_of(args: TrainingArguments, metrics: Mapping[str, float]) -> float | None:
    """Return an evaluation's Spearman x 100 on dev; None where none chooses the checkpoint."""
    found = metrics.get(args.metric_for_best_model or "")
    return None if found is None else 100 * found


def tell_end(record: StageRecord, seconds: float) -> None:
    """Say of a finished stage, by its record, how long it took and what became of dev; `seconds`
    are those of a stage that is not trained, from its beginning to its end.
    """
    dev = best = ""
    if DEV in record.spearman:
        start = number(record.spearman_start.get(DEV))
        dev = f", {DEV} {start} -> {number(record.spearman[DEV])}"
    if dev and record.steps:
        best = f" (step {record.best_step})"
    trained = f", not trained, {seconds:.0f} s"
    if record.steps:
        trained = f" after {record.steps} steps, {record.seconds:.0f} s"
    logger.info("%s: finished%s%s%s", record.name, trained, dev, best)
