"""A folder of results that appears whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from st_jtcse.errors import UserError


def check_new(output: str | os.PathLike[str]) -> None:
    """Refuse a folder that holds something.

    Args:
        output: The folder to be written.

    Raises:
        UserError: It is a file, or holds something.
    """
    target = Path(output)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UserError(f"The output {target} holds something already; choose another folder, or empty it.")


@contextmanager
def new_folder(output: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a folder to fill, which becomes `output` in one step if nothing fails.

    Args:
        output: The folder to be written, new or empty.

    Raises:
        UserError: It is a file, or holds something.
    """
    check_new(output)
    target = Path(output)
    parent = next(parent for parent in target.absolute().parents if parent.is_dir())
    # Beside the output, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=parent) as staging:
        folder = Path(staging, "folder")
        folder.mkdir()
        yield folder
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.replace(target)
