"""What an evaluation knows of one model: results.json, written after every task."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from st_jtcse import ownership, processes
from st_jtcse.atomic import to_json
from st_jtcse.errors import DataUnavailable, UserError
from st_jtcse.evaluation.jobs import Context, Evaluated, EvaluationJob
from st_jtcse.evaluation.suites import Suite, suite_scores
from st_jtcse.records import EvaluatedModel, EvaluationResults, TaskRecord, read

RESULTS, MARKDOWN, PAGE = "results.json", "results.md", "index.html"
_KIND = "results of st-eval"
_LIBRARIES = ("st-jtcse", "mteb", "sentence-transformers", "transformers", "torch", "scikit-learn")
# What a task gave, or why it gave nothing.
Outcome = TaskRecord | str


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(f"{folder} cannot be written ({error.strerror}); choose another folder.")


def check_output(folder: Path, suites: Iterable[str]) -> None:
    """Raise UserError for a folder that holds something else than results of some suites."""
    if not _is_older(folder):
        ownership.check_folder(folder, _KIND)
        ownership.check_place(*(folder / name for name in _files(suites)))


def _files(suites: Iterable[str]) -> list[str]:
    pictures = [f"{suite}.{kind}" for suite in suites for kind in ("png", "svg")]
    return [RESULTS, MARKDOWN, PAGE, *pictures]


def _is_older(folder: Path) -> bool:
    """Whether a folder holds results of a version that made no list of what it wrote."""
    return not os.path.lexists(folder / ownership.LIST) and _is_of_evaluation(folder / RESULTS)


def _is_of_evaluation(path: Path) -> bool:
    """Whether a file has the parts that only results of st-eval have, sound or not."""
    if not path.is_file():
        return False
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and {"model", "suites", "tasks", "missing"} <= found.keys()


class Results:
    """Results of one model, in memory and in a folder, beside those of earlier calls; None keeps
    them nowhere.

    Raises UserError: the folder holds another model's results or something else, or cannot be
    written.
    """

    def __init__(self, evaluated: Evaluated, folder: Path | None) -> None:
        model = evaluated.model
        self.evaluated, self.folder = evaluated, folder
        # A sentence for each task whose main score is not defined.
        self.undefined: list[str] = []
        versions = {"python": platform.python_version()}
        for library in _LIBRARIES:
            with suppress(PackageNotFoundError):
                versions[library] = version(library)
        about = EvaluatedModel(
            name=evaluated.name,
            sha256=evaluated.sha256,
            files=evaluated.files,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            dimension=model.get_embedding_dimension(),
            max_seq_length=model.max_seq_length,
        )
        self.data = EvaluationResults(
            model=about, versions=versions, suites={}, tasks={}, missing={}
        )
        if folder is not None:
            self._go_on(folder)
        self.write()

    def keep(self, key: str, record: TaskRecord) -> None:
        """Keep a task's result."""
        self.data.tasks[key] = record
        self.data.missing.pop(key, None)

    def write(self) -> None:
        """Write the file, whole or not at all."""
        if self.folder is not None:
            try:
                ownership.replace_ours(self.folder / RESULTS, to_json(self.data.plain()))
            except OSError as error:
                raise _unwritable(self.folder, error) from error

    def _go_on(self, folder: Path) -> None:
        """Take a folder, with the results of the same model that it holds."""
        try:
            check_output(folder, ())
            if (folder / RESULTS).is_file():
                self._take_up(folder / RESULTS)
            if _is_older(folder):
                ownership.adopt(folder, _KIND, _files(self.data.suites))
            ownership.take_folder(folder, _KIND)
            ownership.remove_partials(folder)
        except OSError as error:
            raise _unwritable(folder, error) from error

    def _take_up(self, path: Path) -> None:
        earlier = read(EvaluationResults, path, "restore it, or choose another folder")
        there, here = earlier.model, self.data.model
        if there.sha256 != here.sha256:
            other = " ".join(f"{there.name}, {there.sha256[:8]}".split())
            raise UserError(
                f"{path.parent} holds the results of another model ({other}; this one is "
                f"{here.sha256[:8]}); choose another folder."
            )
        self.data.suites = earlier.suites
        self.data.tasks = earlier.tasks
        self.data.missing = earlier.missing

    def run(
        self,
        tables: Sequence[Suite],
        jobs: Mapping[str, EvaluationJob | str],
        batch_size: int,
        progress: Callable[[str, Outcome | None], None],
    ) -> None:
        """Run the tables' jobs, as far as the results do not hold them yet.

        `progress` is told of each as it begins, without an outcome, and as it ends.

        Raises UserError where the model's embeddings cannot be used.
        """
        context = Context(self.evaluated, batch_size)
        records: dict[str, TaskRecord] = {}
        for key, job in jobs.items():
            progress(key, None)
            outcome = job if isinstance(job, str) else self._outcome(key, job, context)
            if isinstance(outcome, str):
                self.data.missing[key] = outcome
            else:
                records[key] = outcome
                self.keep(key, outcome)
            for suite in tables:
                self.data.suites[suite.name] = suite_scores(suite, records)
            self.write()
            progress(key, outcome)

    def _outcome(self, key: str, job: EvaluationJob, context: Context) -> Outcome:
        def keep(record: TaskRecord) -> None:
            if record.is_defined:
                self.keep(key, record)
                self.write()

        before = self.data.tasks.get(key)
        if before is not None and not (before.is_defined and before.data == job.data):
            before = None
        try:
            record = job.run(context, before, keep)
        except DataUnavailable as reason:
            return f"{reason}."
        except UserError:
            raise
        # One of hundreds of tasks may fail in MTEB; the others are still worth their time.
        except Exception as error:
            if processes.is_lost(error):
                raise
            return (
                f"it failed with {type(error).__name__}: "
                f"{' '.join(str(error).split())[:200].rstrip('.')}."
            )
        if record.is_defined:
            return record
        undefined = f"{record.main_score} is undefined, as when all texts have the same embedding"
        where = f"{key}, {self.evaluated.name}"
        self.undefined.append(f"{where}: {undefined}; check the model's weights and the set.")
        return f"{undefined}."
