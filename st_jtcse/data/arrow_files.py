"""Arrow files of the cache: they appear whole or not at all, and are checked before they
are read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from huggingface_hub.constants import HF_HOME

from st_jtcse.errors import UserError
from st_jtcse.hashing import hash_of
from st_jtcse.ownership import claim_hidden, in_the_way, remove_ours

logger = logging.getLogger(__name__)

DEFAULT_CACHE = Path(HF_HOME, "st-jtcse")
_METADATA = b"st_jtcse"
_CHECKSUM = hashlib.sha256().digest_size
_WRITE_ERRORS = {
    errno.ENOSPC: "no space is left on the disk: free some",
    errno.EDQUOT: "your quota of the disk is used up: free some space",
    errno.EACCES: "the folder cannot be written: make it writable",
    errno.EROFS: "the folder cannot be written: make it writable",
    errno.ENOTDIR: "a part of this path is a file: move it",
}


def working_folder(final: Path) -> Path:
    """Make the folder that a file is computed in, which may hold what others put there."""
    folder = final.with_suffix(".shards")
    with write_errors_told(final.parent):
        folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        raise in_the_way(folder)
    return folder


def claim_partial(folder: Path, stem: str) -> Path:
    """Claim a hidden file of a working folder, which no other process writes to."""
    with write_errors_told(folder.parent):
        return claim_hidden(folder, stem, ".partial")


def remove_working_folder(folder: Path) -> None:
    """Remove what was written into a folder, and the folder unless it holds more."""
    with suppress(OSError):
        remove_ours(folder)
        folder.rmdir()


def write_stream(
    partial: Path, cache_dir: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> None:
    """Write an Arrow stream into a file of `cache_dir`, to the disk; nothing is left of one that
    fails.
    """
    try:
        with write_errors_told(cache_dir), partial.open("xb") as file:
            with pa.ipc.new_stream(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_whole(
    partial: Path,
    final: Path,
    settings: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    last: Callable[[], Any] | None = None,
) -> None:
    """Write a file that :func:`is_whole` knows by its settings; `last` says what is known at the
    end only.
    """
    write_stream(
        partial, final.parent, schema.with_metadata({_METADATA: settings.encode()}), batches
    )
    # Behind the end of the Arrow stream, where its readers do not look.
    with write_errors_told(final.parent), partial.open("ab") as file:
        if last is not None:
            file.write(f"\n{json.dumps(last())}".encode())
            file.flush()
        file.write(hash_of(partial).digest())
        file.flush()
        os.fsync(file.fileno())
    partial.replace(final)


def last_words(final: Path) -> Any:
    """Return what a whole file says at its end."""
    with final.open("rb") as file:
        file.seek(max(0, final.stat().st_size - 4096))
        return json.loads(file.read()[:-_CHECKSUM].rpartition(b"\n")[2])


def is_whole(final: Path, settings: str) -> bool:
    """Whether a file is there as it was written; raises UserError for one of other settings."""
    if not os.path.lexists(final):
        return False
    if not final.is_file():  # A pipe would be waited for.
        raise UserError(f"{final} is not a file; remove it, or choose another cache_dir.")
    found = final.stat()
    stored = _settings_of(final, found.st_size, found.st_mtime_ns)
    if stored is None:
        return False
    if stored != settings:
        raise UserError(
            f"{final} was made with other settings ({_first_difference(stored, settings)}); delete "
            "it, or choose another cache_dir."
        )
    return True


@cache  # A process reads a file through once, however many runs of a sweep take it.
def _settings_of(final: Path, size: int, changed: int) -> str | None:
    """Return the settings that a file was made with; None for one that is not whole, and say so."""
    end = max(0, size - _CHECKSUM)
    with final.open("rb") as file:
        file.seek(end)
        checksum = file.read()
    if hash_of(final, end).digest() != checksum:
        logger.warning("%s is damaged, or of an earlier version; computing it again", final)
        return None
    try:
        with pa.memory_map(str(final)) as source, pa.ipc.open_stream(source) as stream:
            return (stream.schema.metadata or {}).get(_METADATA, b"").decode()
    except (pa.ArrowException, UnicodeDecodeError):
        logger.warning("%s holds no table; computing it again", final)
        return None


def _first_difference(stored: str, wanted: str) -> str:
    try:
        there, here = json.loads(stored), json.loads(wanted)
    except ValueError:
        there = None
    if not isinstance(there, dict) or there == here:
        return "it names none"
    key = next(key for key in [*here, *there] if there.get(key) != here.get(key))
    return f"{key}: {there.get(key)!r} there, {here.get(key)!r} here"


@contextmanager
def write_errors_told(cache_dir: Path) -> Iterator[None]:
    """Tell as a UserError what keeps a file from being written there."""
    try:
        yield
    except OSError as error:
        reason = _WRITE_ERRORS.get(error.errno or 0)
        if reason is None:
            raise
        raise UserError(
            f"{cache_dir}: {reason}, or choose another cache_dir, and run again; finished shards "
            "are kept."
        ) from error
