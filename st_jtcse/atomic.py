"""Results that appear whole or not at all: files, and folders of them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from st_jtcse.errors import UserError, naming


def to_json(value: Any) -> str:
    """Format a record for people and programs."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that it is never seen half-written, also where the disk does not take all of
    it.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with naming(path), partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError) and error.filename == str(partial):
            error.filename = str(path)
        raise


def check_new(output: str | os.PathLike[str]) -> None:
    """Raise UserError for an output that is a file, a folder that holds something, or lies below a
    file.
    """
    target = Path(output)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(
            f"The output {target} holds something already; choose another folder, or empty it."
        )
    above = next(parent for parent in target.absolute().parents if parent.exists())
    if not above.is_dir():
        raise UserError(
            f"The output {target} lies below {above}, which is a file; choose another place."
        )


@contextmanager
def new_folder(output: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a folder to fill, which becomes `output`, new or empty, in one step if nothing fails."""
    check_new(output)
    target = Path(output)
    parent = next(parent for parent in target.absolute().parents if parent.is_dir())
    # Beside the output, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=parent) as staging:
        folder = Path(staging, "folder")
        folder.mkdir()
        with naming(target):
            yield folder
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.replace(target)
