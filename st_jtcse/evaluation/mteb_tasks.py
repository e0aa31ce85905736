"""MTEB tasks with exact subsets and splits, and their data from a local folder."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict

from st_jtcse.errors import DataUnavailable, UserError
from st_jtcse.evaluation.jobs import Context
from st_jtcse.evaluation.mteb_models import TASK_LIST, ResultCache, TaskResult, mteb, quietly
from st_jtcse.evaluation.suites import Row
from st_jtcse.hashing import sha256
from st_jtcse.records import TaskRecord
from st_jtcse.wording import unknown


def check_task(
    name: str, subsets: Sequence[str] | None = None, splits: Sequence[str] | None = None
) -> None:
    """Refuse with a UserError a task, subset or split that MTEB does not know."""
    tasks = {task.metadata.name: task.metadata for task in TASK_LIST}
    if name not in tasks:
        way_out = "The command 'mteb available-tasks' lists them."
        raise UserError(unknown("the name of an MTEB task", name, tasks, way_out))
    task = tasks[name]
    for what, wanted, known in (
        ("subset", subsets, task.hf_subsets),
        ("split", splits, task.eval_splits),
    ):
        for part in wanted or ():
            if part not in known:
                # Some tasks have forty thousand.
                more = f" and {len(known) - 20} more" if len(known) > 20 else ""
                listed = f"Use one of: {', '.join(known[:20])}{more}."
                raise UserError(f"{name}: {unknown(f'a {what} of the task', part, known, listed)}")


class MTEBJob:
    """One MTEB task, restricted, and where its data come from.

    Args:
        row: The task, with its subsets and splits; None for all that MTEB evaluates.
        folder: Holds data sets under their Hub names.
    """

    def __init__(self, row: Row, folder: Path | None = None) -> None:
        with quietly():
            metadata = mteb.get_task(row.task).metadata
            self.subsets = list(metadata.hf_subsets if row.subsets is None else row.subsets)
            self.splits = list(metadata.eval_splits if row.splits is None else row.splits)
            self._task: Any = mteb.get_task(
                row.task, hf_subsets=self.subsets, eval_splits=self.splits
            )
        self.main_score: str = metadata.main_score
        self.source = f"{metadata.dataset['path']}@{metadata.dataset['revision']}"
        self.sha256: str | None = None
        self._given: DatasetDict | None = None
        if folder is not None:
            self._find_data(folder)

    @property
    def data(self) -> str:
        """Which data it runs on, as `TaskRecord.data` has it."""
        return self.sha256 or self.source

    def fill(self, pairs: Sequence[Sequence[Any]], source: str, sha256: str) -> None:
        """Take graded pairs in place of the task's own.

        Args:
            pairs: First sentences, second sentences and scores.
            source: Where they were read.
            sha256: Hash of them.
        """
        rows = Dataset.from_dict(dict(zip(("sentence1", "sentence2", "score"), pairs)))
        self._given = DatasetDict({self.splits[0]: rows})
        self.source, self.sha256 = source, sha256

    def run(
        self, context: Context, earlier: TaskRecord | None, keep: Callable[[TaskRecord], object]
    ) -> TaskRecord:
        """Evaluate the model on what an earlier run on the same data has not, which MTEB adds to
        the others.

        `keep` is told of finished parts. Raises DataUnavailable, and UserError where the embeddings
        cannot be used.
        """
        with quietly():
            known = None
            if earlier is not None:
                known = TaskResult.from_task_results(self._task, earlier.scores, earlier.seconds)
            if known is None or known.get_missing_evaluations(self._task):
                try:
                    self._load_data()
                except Exception as error:  # Loaders of hundreds of data sets raise what they like.
                    reason = " ".join(str(error).split())[:160]
                    raise DataUnavailable(
                        f"its data, {self.source}, cannot be had ({reason})"
                    ) from error
            result = mteb.evaluate(
                context.encoder,
                self._task,
                cache=_Known(known, lambda result: keep(self._record(result))),
                co2_tracker=False,
                show_progress_bar=False,
                encode_kwargs={"batch_size": context.batch_size, "show_progress_bar": False},
            )
        # The next task needs the memory.
        self._task.unload_data()
        return self._record(result.task_results[0])

    def _load_data(self) -> None:
        if self._given is None:
            self._task.load_data()
            return
        # For each of several models: the task gives its data back after one.
        self._task.dataset, self._task.data_loaded = self._given, True

    def _record(self, result: TaskResult) -> TaskRecord:
        scores = {
            split: {str(entry["hf_subset"]): _figures(entry) for entry in entries}
            for split, entries in result.scores.items()
        }
        return TaskRecord(
            source=self.source,
            sha256=self.sha256,
            main_score=self.main_score,
            scores=scores,
            seconds=round(result.evaluation_time or 0.0, 1),
        )

    def _find_data(self, folder: Path) -> None:
        mirror = folder / self._task.metadata.dataset["path"]
        if mirror.is_dir():
            # MTEB's own loader then reads the folder as it would read the Hub's.
            dataset = {**self._task.metadata.dataset, "path": str(mirror)}
            self._task.metadata = self._task.metadata.model_copy(update={"dataset": dataset})
            self.source, self.sha256 = mirror.relative_to(folder).as_posix(), _folder_sha256(mirror)


class _Known(ResultCache):
    """MTEB's cache of one task, whose home is our results.json.

    MTEB's own files do not tell local data from the Hub's, round the scores, and can be seen
    half-written.
    """

    def __init__(self, known: TaskResult | None, keep: Callable[[TaskResult], object]) -> None:
        self._known, self._keep = known, keep

    def load_task_result(self, task_name: str, *_: Any, **__: Any) -> TaskResult | None:
        if self._known and self._known.task_name == task_name:
            return self._known
        return None

    def save_to_cache(self, task_result: TaskResult, *_: Any, **__: Any) -> None:
        self._keep(task_result)


def _figures(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an MTEB result; how far a score depends on a threshold (nAUC) is no score."""
    return {
        name: float(value)
        for name, value in entry.items()
        if isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and not name.startswith("nauc_")
    }


def _folder_sha256(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = "".join(f"{path.relative_to(folder)} {sha256(path)}\n" for path in files)
    return hashlib.sha256(lines.encode()).hexdigest()
