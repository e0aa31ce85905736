"""What an evaluation knows of one model: results.json, written after every task."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from st_jtcse.atomic import to_json, write_atomically
from st_jtcse.errors import UserError
from st_jtcse.evaluation.evaluated import Evaluated
from st_jtcse.evaluation.jobs import Record

RESULTS = "results.json"
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
            if (folder / RESULTS).is_file():
                self._go_on(folder / RESULTS)
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _unwritable(folder, error) from error
            if not os.access(folder, os.W_OK):
                raise UserError(f"{folder} cannot be written; choose another folder.")
            self.write()

    def record(self, key: str) -> Record | None:
        """Return what is known of a task."""
        found = self.data["tasks"].get(key)
        return None if found is None else Record(**found)

    def keep(self, key: str, record: Record) -> None:
        """Keep a task's result."""
        self.data["tasks"][key] = asdict(record)
        self.data["missing"].pop(key, None)

    def write(self) -> None:
        """Write the file, whole or not at all."""
        if self.folder is not None:
            try:
                write_atomically(self.folder / RESULTS, to_json(self.data))
            except OSError as error:
                raise _unwritable(self.folder, error) from error

    def _go_on(self, path: Path) -> None:
        try:
            earlier = json.loads(path.read_text(encoding="utf-8"))
            name, sha256 = earlier["model"]["name"], earlier["model"]["sha256"]
            kept = {part: earlier[part] for part in ("suites", "tasks", "missing")}
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path} is no evaluation's; choose another folder.") from None
        if sha256 != self.data["model"]["sha256"]:
            raise UserError(
                f"{path.parent} holds the results of another model ({name}, {sha256[:8]}; this one is "
                f"{self.data['model']['sha256'][:8]}); choose another folder."
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


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(f"{folder} cannot be written ({error.strerror}); choose another folder.")
