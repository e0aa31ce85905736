"""What an evaluation knows of one model: results.json, written after every task."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from st_jtcse import ownership
from st_jtcse.atomic import to_json
from st_jtcse.errors import DataUnavailable, UserError
from st_jtcse.evaluation.jobs import Context, Evaluated, Job, Record
from st_jtcse.evaluation.suites import Suite, suite_scores

RESULTS, MARKDOWN, PAGE = "results.json", "results.md", "index.html"
_KIND = "results of st-eval"
_LIBRARIES = ("st-jtcse", "mteb", "sentence-transformers", "transformers", "torch", "scikit-learn")
# What a task gave, or why it gave nothing.
Outcome = Record | str


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
    return not os.path.lexists(folder / ownership.LIST) and bool(_read(folder / RESULTS))


def _read(path: Path) -> dict[str, Any]:
    """Return what is kept of earlier calls; nothing where the file is not st-eval's."""
    if not path.is_file():
        return {}
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        model = {key: str(earlier["model"][key]) for key in ("name", "sha256")}
        return {"model": model} | {
            part: dict(earlier[part]) for part in ("suites", "tasks", "missing")
        }
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


class Results:
    """Results of one model, in memory and in a folder, beside those of earlier calls; None keeps
    them nowhere.

    Raises UserError: the folder holds another model's results or something else, or cannot be
    written.
    """

    def __init__(self, evaluated: Evaluated, folder: Path | None) -> None:
        model = evaluated.model
        self.evaluated, self.folder = evaluated, folder
        versions = {"python": platform.python_version()}
        for library in _LIBRARIES:
            with suppress(PackageNotFoundError):
                versions[library] = version(library)
        self.data: dict[str, Any] = {
            "model": {
                "name": evaluated.name,
                "sha256": evaluated.sha256,
                "files": evaluated.files,
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                "dimension": model.get_embedding_dimension(),
                "max_seq_length": model.max_seq_length,
            },
            "versions": versions,
            "suites": {},
            "tasks": {},
            "missing": {},
        }
        if folder is not None:
            self._go_on(folder)
        self.write()

    def keep(self, key: str, record: Record) -> None:
        """Keep a task's result."""
        self.data["tasks"][key] = asdict(record)
        self.data["missing"].pop(key, None)

    def write(self) -> None:
        """Write the file, whole or not at all."""
        if self.folder is not None:
            try:
                ownership.replace_ours(self.folder / RESULTS, to_json(self.data))
            except OSError as error:
                raise _unwritable(self.folder, error) from error

    def _go_on(self, folder: Path) -> None:
        """Take a folder, with the results of the same model that it holds."""
        try:
            check_output(folder, ())
            earlier = _read(folder / RESULTS)
            now = self.data["model"]["sha256"]
            if earlier and earlier["model"]["sha256"] != now:
                name, sha256 = earlier["model"].values()
                raise UserError(
                    f"{folder} holds the results of another model ({name}, {sha256[:8]}; this one "
                    f"is {now[:8]}); choose another folder."
                )
            if _is_older(folder):
                ownership.adopt(folder, _KIND, _files(earlier["suites"]))
            ownership.take_folder(folder, _KIND)
            ownership.remove_partials(folder)
        except OSError as error:
            raise _unwritable(folder, error) from error
        self.data |= {part: kept for part, kept in earlier.items() if part != "model"}

    def run(
        self,
        tables: Sequence[Suite],
        jobs: Mapping[str, Job | str],
        batch_size: int,
        progress: Callable[[str, Outcome | None], None],
    ) -> None:
        """Run the tables' jobs, as far as the results do not hold them yet.

        `progress` is told of each as it begins, without an outcome, and as it ends.

        Raises UserError where the model's embeddings cannot be used.
        """
        context = Context(self.evaluated, batch_size)
        records: dict[str, Record] = {}
        for key, job in jobs.items():
            progress(key, None)
            outcome = job if isinstance(job, str) else self._outcome(key, job, context)
            if isinstance(outcome, str):
                self.data["missing"][key] = outcome
            else:
                records[key] = outcome
                self.keep(key, outcome)
            for suite in tables:
                self.data["suites"][suite.name] = suite_scores(suite, records)
            self.write()
            progress(key, outcome)

    def _outcome(self, key: str, job: Job, context: Context) -> Outcome:
        def keep(record: Record) -> None:
            if record.is_defined:
                self.keep(key, record)
                self.write()

        known = self.data["tasks"].get(key)
        before = known and Record(**known)
        try:
            record = job.run(context, before if before and before.data == job.data else None, keep)
        except DataUnavailable as reason:
            return f"{reason}."
        except UserError:
            raise
        # One of hundreds of tasks may fail in MTEB; the others are still worth their time.
        except Exception as error:
            return (
                f"it failed with {type(error).__name__}: "
                f"{' '.join(str(error).split())[:200].rstrip('.')}."
            )
        if not record.is_defined:
            return f"{record.main_score} is undefined, as when all texts have the same embedding."
        return record
