"""What a saved model's `modules.json` says of the classes it is made of."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from st_jtcse.errors import UserError

MODULES = "modules.json"
_PACKAGE = __name__.partition(".")[0]


def read_listing(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return a saved model's entries in order, each with its type and path; none for a plain encoder."""
    path = Path(folder, MODULES)
    if not path.is_file():
        return []
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        complete = all({"type", "path"} <= entry.keys() for entry in entries)
    except (ValueError, TypeError, AttributeError):
        complete = False
    if not complete:
        raise UserError(f"{path} is no list of modules; save the model again.")
    return entries


def own_class(folder: str | os.PathLike[str]) -> str | None:
    """Return the name of the first class of this package, which Sentence-Transformers takes with the flag only."""
    types = (entry["type"] for entry in read_listing(folder))
    return next((name.rpartition(".")[2] for name in types if name.startswith(f"{_PACKAGE}.")), None)
