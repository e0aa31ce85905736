"""Result files that are never seen half-written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def to_json(value: Any) -> str:
    """Format a record for people and programs."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that it is never seen half-written."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
