"""MTEB tasks with exact subsets and splits, and their data from a local folder."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict

from st_jtcse.errors import UserError
from st_jtcse.evaluation.mteb_library import TASK_LIST, mteb, quietly
from st_jtcse.evaluation.record import Scores
from st_jtcse.evaluation.senteval_data import STSSet, load_sts
from st_jtcse.evaluation.unavailable import DataUnavailable
from st_jtcse.hashing import sha256
from st_jtcse.wording import unknown

# MTEB tasks with the very pairs of a SentEval set, which a local folder may hold for both.
SAME_PAIRS = {**{f"STS{year}": f"STS{year}" for year in range(12, 17)}, "STSBenchmark": "STSB"}
_ALL_TASKS = "The command 'mteb available-tasks' lists them."


class Task:
    """One MTEB task, restricted, and where its data come from.

    Args:
        name: MTEB's name.
        subsets: Subsets; None for all.
        splits: Splits; None for all that MTEB evaluates.
        pairs: SentEval set whose pairs stand in for the task's own.
        folder: Holds data sets under their Hub names, or graded pairs as JSONL (``sts/``).

    Raises:
        UserError: There is no such task, subset or split, or a local file is faulty.
    """

    def __init__(
        self,
        name: str,
        subsets: Sequence[str] | None = None,
        splits: Sequence[str] | None = None,
        *,
        pairs: str | None = None,
        folder: Path | None = None,
    ) -> None:
        known = {task.metadata.name for task in TASK_LIST}
        if name not in known:
            raise UserError(f"--task: {unknown('the name of an MTEB task', name, known, _ALL_TASKS)}")
        with quietly():
            self._task: Any = mteb.get_task(name)
        metadata = self._task.metadata
        self.name = name
        self.main_score: str = metadata.main_score
        self.subsets = _chosen(f"--task {name}", "a subset of the task", subsets, metadata.hf_subsets)
        self.splits = _chosen(f"--task {name}", "a split of the task", splits, metadata.eval_splits)
        self.source = f"{metadata.dataset['path']}@{metadata.dataset['revision']}"
        self.sha256: str | None = None
        with quietly():
            self._task = mteb.get_task(name, hf_subsets=self.subsets, eval_splits=self.splits)
        self._missing: DataUnavailable | None = None
        self._find_data(pairs, folder)

    def run(self, encoder: Any, batch_size: int) -> Scores:
        """Evaluate an encoder and return the figures by split and subset.

        Args:
            encoder: MTEB's view of a model.
            batch_size: Texts encoded at once.

        Raises:
            DataUnavailable: The data cannot be had.
        """
        if self._missing is not None:
            raise self._missing
        with quietly():
            try:
                self._task.load_data()
            except Exception as error:  # Loaders of hundreds of data sets raise what they like.
                reason = " ".join(str(error).split())[:160]
                raise DataUnavailable(f"its data, {self.source}, cannot be had ({reason})") from error
            result = mteb.evaluate(
                encoder,
                self._task,
                cache=None,
                co2_tracker=False,
                show_progress_bar=False,
                encode_kwargs={"batch_size": batch_size, "show_progress_bar": False},
            )
        # The next task needs the memory.
        self._task.unload_data()
        return {
            split: {str(entry["hf_subset"]): _figures(entry) for entry in entries}
            for split, entries in result.task_results[0].scores.items()
        }

    def _find_data(self, pairs: str | None, folder: Path | None) -> None:
        if pairs is not None:
            try:
                self._fill(load_sts(pairs, folder))
            except DataUnavailable as reason:
                self._missing = reason
            return
        if folder is None:
            return
        mirror = folder / self._task.metadata.dataset["path"]
        if mirror.is_dir():
            # MTEB's own loader then reads the folder as it would read the Hub's.
            dataset = {**self._task.metadata.dataset, "path": str(mirror)}
            self._task.metadata = self._task.metadata.model_copy(update={"dataset": dataset})
            self.source, self.sha256 = mirror.relative_to(folder).as_posix(), _folder_sha256(mirror)
        elif self.name in SAME_PAIRS:
            with suppress(DataUnavailable):
                self._fill(load_sts(SAME_PAIRS[self.name], folder, hub=False))

    def _fill(self, found: STSSet) -> None:
        columns = [[cell for subset in found.subsets.values() for cell in subset[column]] for column in range(3)]
        pairs = Dataset.from_dict(dict(zip(("sentence1", "sentence2", "score"), columns)))
        self._task.dataset = DatasetDict({self.splits[0]: pairs})
        self._task.data_loaded = True
        self.source, self.sha256 = found.source, found.sha256


def _chosen(place: str, what: str, wanted: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    for name in wanted or ():
        if name not in known:
            raise UserError(f"{place}: {unknown(what, name, known, f'Use one of: {_some(known)}.')}")
    return list(known if wanted is None else wanted)


def _some(known: Sequence[str]) -> str:
    # Some tasks have forty thousand.
    return ", ".join(known) if len(known) <= 20 else f"{', '.join(known[:20])} and {len(known) - 20} more"


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
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)} {sha256(path)}\n".encode())
    return digest.hexdigest()
