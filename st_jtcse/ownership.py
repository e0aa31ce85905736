"""What this package has written into a folder, by a list there; nothing else is replaced or
removed.

The list is only ever appended to. Whatever is written beside it is named there first: a file with
the hash of its content, a folder that others fill before anything lies at its place, and what is
temporary by a random name.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from st_jtcse.atomic import check_new, partial_name, write_atomically
from st_jtcse.errors import UserError, naming

LIST = ".st-jtcse.jsonl"
_PARTIAL = ".partial"


class _Entry(BaseModel):
    """A line of a list."""

    name: str
    size: int | None = None  # Bytes of a file's content, or of its beginning
    # Of these bytes; of a folder: of the file in it that vouches for the others.
    sha256: str = ""
    grows: bool = False  # Whether more is appended to the file
    files: list[str] = []  # Of a folder, by path


def check_folder(folder: Path, kind: str) -> None:
    """Raise UserError for an output folder that holds something, unless it was taken for its kind.

    Raises PermissionError where it cannot be written.
    """
    if not is_taken(folder, kind) and not _is_barely_taken(folder, kind):
        check_new(folder)


def take_folder(folder: Path, kind: str) -> list[Path]:
    """Make an output folder ours, and return the folders that had to be made for it.

    The kind is what it is going to hold. Raises as :func:`check_folder` does.
    """
    check_folder(folder, kind)
    if is_taken(folder, kind):
        return []
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LIST
    if path.exists():  # Half written, when a process was killed.
        path.unlink()
    try:
        with naming(path), path.open("x", encoding="utf-8") as file:
            file.write(_header(kind))
    except OSError:
        for place in made:
            with suppress(OSError):
                place.rmdir()
        raise
    return made


def is_taken(folder: Path, kind: str | None = None) -> bool:
    """Whether a folder was taken for a kind of content, by default for any."""
    first = _lines(folder)[:1]
    if kind:
        return first == [_header(kind)]
    return first not in ([], [""])


def adopt(folder: Path, kind: str | None, names: Iterable[str]) -> None:
    """Make a list for a folder of an earlier version, which wrote none, of the files that it wrote
    and the folders that it had filled.
    """
    lines = [_header(kind) if kind else ""]
    for path in (folder / name for name in names):
        if _is_file(path):
            lines.append(_entry_of(path.name, path.read_bytes()).model_dump_json())
        elif _is_folder(path):
            lines.append(_Entry(name=path.name).model_dump_json())
    write_atomically(folder / LIST, "\n".join(lines))


def claim(path: Path, files: Iterable[str] = (), sha256: str = "") -> Path:
    """Put a path on the list, whose place is free or ours; of a folder also its files, and the hash
    of the one that vouches for them.
    """
    check_place(path)
    _note(path.parent, _Entry(name=path.name, files=list(files), sha256=sha256))
    return path


def claim_hidden(folder: Path, stem: str, suffix: str = "") -> Path:
    """Claim a path of a random name, for what is temporary."""
    return claim(folder / f".{stem}.{secrets.token_hex(4)}{suffix}")


def check_place(*paths: Path) -> None:
    """Raise UserError where something lies at a path that is not ours."""
    for path in paths:
        if os.path.lexists(path) and not is_ours(path):
            raise in_the_way(path)


def check_lock(path: Path) -> None:
    """Raise UserError where something lies that is no lock."""
    if os.path.lexists(path) and not is_lock(path):
        raise in_the_way(path)


def is_lock(path: Path) -> bool:
    """Whether a file can be a lock, which holds nothing."""
    return _is_file(path) and path.stat().st_size == 0


def in_the_way(path: Path) -> UserError:
    """Return what is told of something that is not ours where we were to write."""
    return UserError(
        f"{path} is not what st-jtcse wrote there, or was changed since; move it to another place."
    )


def is_ours(path: Path) -> bool:
    """Whether the list knows a folder, or a file with this content; a link is never ours."""
    return _is_one_of(path, _entries(path.parent).get(path.name, []))


def vouched(path: Path) -> set[str]:
    """Return the hashes of the files that vouch for what a folder of ours held at some time."""
    return {entry.sha256 for entry in _entries(path.parent).get(path.name, [])} - {""}


def replace_ours(path: Path, content: str | bytes, *, grows: bool = False) -> None:
    """Write a file as :func:`write_atomically`, in a place that is free or holds one of ours.

    Of a file that `grows`, more may be appended to the content. Raises UserError where something
    else lies there.
    """
    check_place(path)
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == data:
        return
    partial = partial_name(path)
    _note(path.parent, _entry_of(path.name, data, grows), _Entry(name=partial))
    write_atomically(path, data, partial)


def partials(folder: Path) -> set[str]:
    """Return the names under which files of a folder are, or were, being written."""
    return {name for name in _entries(folder) if name.endswith(_PARTIAL)}


def remove_partials(folder: Path) -> None:
    """Remove what was being written into a folder when a process was killed."""
    for name in partials(folder):
        remove_file(folder / name)


def remove_file(path: Path) -> None:
    """Remove a file if it is ours."""
    if _is_file(path) and is_ours(path):
        path.unlink(missing_ok=True)


def remove_ours(folder: Path, is_saved: Callable[[str], bool] = lambda name: False) -> None:
    """Remove from a folder all that is ours, as far as it is what the list says, and the list.

    `is_saved` is :func:`remove_folder`'s.
    """
    for name, entries in _entries(folder).items():
        path = folder / name
        if not _is_one_of(path, entries):
            continue
        if path.is_dir():
            remove_folder(path, is_saved)
        else:
            path.unlink(missing_ok=True)
    (folder / LIST).unlink(missing_ok=True)


def remove_folder(path: Path, is_saved: Callable[[str], bool]) -> None:
    """Remove the files of a folder of ours that the list names, or whose name is one that only
    what we had saved there has, and the folder unless it holds more.
    """
    listed = {file for entry in _entries(path.parent).get(path.name, []) for file in entry.files}
    for place, _, names in os.walk(path, topdown=False):
        for file in (Path(place, name) for name in names):
            known = is_saved(file.name) or file.relative_to(path).as_posix() in listed
            if known and _is_file(file):
                file.unlink()
        if not os.listdir(place):
            os.rmdir(place)


def own_copy(path: Path) -> None:
    """Give a file that is to be appended to an existence of its own, where other names lead to it
    too.
    """
    if _is_file(path) and path.stat().st_nlink > 1:
        write_atomically(path, path.read_bytes())


def _header(kind: str) -> str:
    return f'{{"holds": "{kind}", "list of": "what st-jtcse wrote into this folder"}}'


def _is_barely_taken(folder: Path, kind: str) -> bool:
    """Whether a process was killed while it wrote the first line of a list."""
    path = folder / LIST
    if not _is_file(path) or os.listdir(folder) != [LIST]:
        return False
    return _header(kind).startswith("\n".join(_lines(folder)))


def _lines(folder: Path) -> list[str]:
    path = folder / LIST
    if not _is_file(path):
        return []
    return path.read_text(encoding="utf-8", errors="replace").split("\n")


def _entries(folder: Path) -> dict[str, list[_Entry]]:
    """Return the entries of a folder's list by name; a line that cannot be read makes nothing
    ours.
    """
    found: dict[str, list[_Entry]] = {}
    for line in _lines(folder):
        with suppress(ValidationError):
            entry = _Entry.model_validate_json(line)
            # Nothing beyond the folder, whoever wrote the list.
            if entry.name and Path(entry.name).name == entry.name != "..":
                found.setdefault(entry.name, []).append(entry)
    return found


def _note(folder: Path, *entries: _Entry) -> None:
    path = folder / LIST
    own_copy(path)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    lines = (entry.model_dump_json(exclude_defaults=True) for entry in entries)
    # The break comes first: behind a line that a kill cut off begins another.
    data = "".join(f"\n{line}" for line in lines).encode()
    with naming(path), open(path, "ab", opener=lambda name, _: os.open(name, flags, 0o666)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _entry_of(name: str, data: bytes, grows: bool = False) -> _Entry:
    digest = hashlib.sha256(data).hexdigest()
    return _Entry(name=name, size=len(data), sha256=digest, grows=grows)


def _is_one_of(path: Path, entries: Iterable[_Entry]) -> bool:
    return any(_fits(path, entry) for entry in entries)


def _fits(path: Path, entry: _Entry) -> bool:
    if entry.size is None:
        return _is_file(path) or _is_folder(path)
    if not _is_file(path) or path.stat().st_size < entry.size:
        return False
    with path.open("rb") as file:
        begins = hashlib.sha256(file.read(entry.size)).hexdigest() == entry.sha256
        return begins and (entry.grows or not file.read(1))


def _is_file(path: Path) -> bool:
    return _has_type(path, stat.S_ISREG)


def _is_folder(path: Path) -> bool:
    return _has_type(path, stat.S_ISDIR)


def _has_type(path: Path, is_type: Callable[[int], bool]) -> bool:
    """Whether something of this type lies at a path itself, and not behind a link there."""
    try:
        return is_type(os.lstat(path).st_mode)
    except OSError:
        return False
