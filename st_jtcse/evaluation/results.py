"""What an evaluation leaves: results.json and results.md, written after every task."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from st_jtcse.atomic import to_json, write_atomically
from st_jtcse.errors import UserError
from st_jtcse.evaluation.models import Evaluated
from st_jtcse.evaluation.record import Record
from st_jtcse.evaluation.report import markdown

JSON, MARKDOWN = "results.json", "results.md"
_LIBRARIES = ("st-jtcse", "mteb", "sentence-transformers", "transformers", "torch", "scikit-learn")


class Results:
    """Results of one model, in memory and in a folder.

    Args:
        evaluated: The model.
        folder: Where they are kept, beside those of earlier calls on the same model; None keeps them nowhere.

    Raises:
        UserError: The folder holds another model's results or something else, or cannot be written.
    """

    def __init__(self, evaluated: Evaluated, folder: Path | None) -> None:
        model = evaluated.model
        self.folder = folder
        self.data: dict[str, Any] = {
            "model": {
                "name": evaluated.name,
                "sha256": evaluated.sha256,
                "files": evaluated.files,
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                "dimension": model.get_embedding_dimension(),
                "max_seq_length": model.max_seq_length,
            },
            "versions": {"python": platform.python_version(), **_versions()},
            "suites": {},
            "tasks": {},
            "missing": {},
        }
        if folder is not None:
            self._open(folder)

    def record(self, key: str) -> Record | None:
        """Return a finished task's result."""
        found = self.data["tasks"].get(key)
        return None if found is None else Record(**found)

    def add(self, key: str, record: Record) -> Record:
        """Keep a task's result, and return it with what is kept of its other subsets and splits, from the same data."""
        before = self.record(key)
        scores = dict(record.scores)
        if before is not None and before.data == record.data:
            for split, subsets in before.scores.items():
                scores[split] = {**subsets, **scores.get(split, {})}
        whole = replace(record, scores=scores)
        self.data["tasks"][key] = asdict(whole)
        self.data["missing"].pop(key, None)
        return whole

    def miss(self, key: str, reason: str) -> None:
        """Keep why a task has no result."""
        self.data["missing"][key] = reason

    def show(self, name: str, section: dict[str, Any]) -> None:
        """Keep a table."""
        self.data["suites"][name] = section

    def write(self) -> None:
        """Write both files, each whole or not at all."""
        if self.folder is None:
            return
        try:
            write_atomically(self.folder / JSON, to_json(self.data))
            write_atomically(self.folder / MARKDOWN, markdown(self.data))
        except OSError as error:
            raise UserError(_unwritable(self.folder, error)) from error

    def _open(self, folder: Path) -> None:
        path = folder / JSON
        if path.is_file():
            self._resume(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(_unwritable(folder, error)) from error
        if not os.access(folder, os.W_OK):
            raise UserError(f"--output-dir: {folder} cannot be written; choose another folder.")
        self.write()

    def _resume(self, path: Path) -> None:
        try:
            earlier = json.loads(path.read_text(encoding="utf-8"))
            name, sha256 = earlier["model"]["name"], earlier["model"]["sha256"]
            kept = {part: earlier[part] for part in ("suites", "tasks", "missing")}
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(f"{path} is no evaluation's; choose another folder with --output-dir.") from None
        if sha256 != self.data["model"]["sha256"]:
            raise UserError(
                f"{path.parent} holds the results of another model ({name}, {sha256[:8]}; this one is "
                f"{self.data['model']['sha256'][:8]}); choose another folder with --output-dir."
            )
        self.data |= kept


def _versions() -> dict[str, str]:
    found = {}
    for library in _LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


def _unwritable(folder: Path, error: OSError) -> str:
    return f"--output-dir: {folder} cannot be written ({error.strerror}); choose another folder."
