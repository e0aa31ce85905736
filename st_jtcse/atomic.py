"""Results that appear whole or not at all: files, and folders of them."""

from __future__ import annotations

import errno
import json
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from st_jtcse.errors import UserError, naming


def to_json(value: Any) -> str:
    """Format a record for people and programs."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def partial_name(path: Path) -> str:
    """Return a name beside a file, to write it under at first, that nobody can know beforehand."""
    return f".{path.name}.{secrets.token_hex(4)}.partial"


def write_atomically(
    path: Path, content: str | bytes | Iterable[bytes], partial: str | None = None
) -> None:
    """Write a file so that it is never seen half-written, also where the disk does not take all of
    it.

    `partial` is its name until it is whole; a random one by default.
    """
    data = content.encode() if isinstance(content, str) else content
    parts = [data] if isinstance(data, bytes) else data
    unfinished = path.with_name(partial or partial_name(path))
    try:
        with naming(path), unfinished.open("xb") as file:  # Which follows no link.
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException as error:
        if not isinstance(error, FileExistsError):
            with suppress(OSError):
                unfinished.unlink()
        if isinstance(error, OSError) and error.filename == str(unfinished):
            error.filename = str(path)
        raise


def check_new_file(path: Path) -> None:
    """Raise UserError where something lies at a path, be it a link that leads nowhere."""
    if os.path.lexists(path):
        raise UserError(f"{path} exists already; choose another file.")


def write_new(path: Path, text: str | Iterable[bytes]) -> None:
    """Write a new file, whole or not at all; UserError where something lies there by now."""
    check_new_file(path)
    write_atomically(path, text)


def check_new(output: str | os.PathLike[str]) -> None:
    """Raise UserError for an output folder that holds something, is none or lies below a file.

    Raises PermissionError where it cannot be written.
    """
    target = Path(output)
    if os.path.lexists(target) and not target.is_dir():
        raise UserError(f"{target} is not a folder; choose another folder.")
    if target.exists() and any(target.iterdir()):
        raise UserError(f"{target} is not empty; choose another folder.")
    above = next(place for place in (target, *target.absolute().parents) if place.exists())
    if not above.is_dir():
        raise UserError(
            f"The output {target} lies below {above}, which is a file; choose another place."
        )
    if not os.access(above, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(above))


@contextmanager
def new_folder(output: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a folder to fill, which becomes `output`, new or empty, in one step if nothing fails.

    The current folder, a mounted one and one behind a link cannot be replaced: these get its files
    one by one, folders first.
    """
    check_new(output)
    target = Path(output).absolute()
    filled = target.is_dir() and (
        target.is_symlink() or os.path.ismount(target) or target.samefile(os.curdir)
    )
    places = (target, *target.parents) if filled else target.parents
    parent = next(place for place in places if place.is_dir())
    # Beside the output, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=parent) as staging:
        folder = Path(staging, "folder")
        folder.mkdir()
        with naming(target):
            yield folder
        if not filled:
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.replace(target)
            return
        for path in sorted(folder.iterdir(), key=Path.is_file):
            check_new_file(target / path.name)
            path.rename(target / path.name)
