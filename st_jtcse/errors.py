"""The exceptions a user is meant to meet, told without a traceback."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# The disk's errors: whatever they were told as, they are its own.
_OF_THE_DISK = {
    errno.ENOSPC: "no space is left on the disk; free some",
    errno.EDQUOT: "your quota of the disk is used up; free some space",
    errno.EFBIG: "a file may not grow so large here; raise that limit",
    errno.EROFS: "the disk is read-only; choose another place",
    errno.EIO: "the disk could not be read or written; see whether it is full or failing",
}
_OF_A_PLACE = {
    errno.EACCES: "you have no permission; change that, or choose another place",
    errno.EPERM: "you have no permission; change that, or choose another place",
    errno.ENOENT: "there is no such file or folder; check the path",
    errno.ENOTDIR: "a part of this path is a file; move it, or choose another place",
    errno.EISDIR: "it is a folder; name a file",
    errno.EEXIST: "it exists already; choose another place",
    errno.ENOTEMPTY: "the folder is not empty; choose another place",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.ELOOP: "its links lead in a circle; choose another place",
    errno.EMFILE: "too many files are open; raise that limit (ulimit -n)",
}
# How libraries written in Rust and pyarrow tell the system's error number.
_NUMBER = re.compile(r"\((?:os error|errno) (\d+)\)|\[errno (\d+)\]", re.IGNORECASE)
# torch keeps the number to itself, and says so where it writes.
_TORCH_WRITES = re.compile(
    r"PytorchStreamWriter|inline_container.*unexpected pos|basic_ios::clear: iostream error",
    re.DOTALL,
)
# How torch, numpy and pyarrow tell that there is no memory, of the host or of an accelerator; and
# how much was wanted.
_NO_MEMORY = re.compile(
    r"MemoryError|out of memory|(?:can't|[Cc]annot) allocate memory|not enough memory"
)
_WANTED = re.compile(r"(?:[Tt]ried|Unable) to allocate ([\d.]+ \w+)")


class UserError(Exception):
    """The user's input is at fault; each fault is one sentence that names the place and the way
    out.

    For example ``"recipe.yaml:9 stages[1].data: expected ..., found .... Do ...."``.
    """

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class DataUnavailable(UserError):
    """A data set is neither on this machine nor reachable; of several tasks the others go on
    without it.
    """


class ChoiceNeeded(UserError):
    """The user has to say something that nobody can know for him.

    Args:
        fact: What was found, without a full stop.
        way_out: How to say it where no command or recipe names its own way.
    """

    def __init__(self, fact: str, way_out: str) -> None:
        super().__init__(f"{fact}; {way_out}.")
        self.fact = fact


class PoolingNeeded(ChoiceNeeded):
    """Nothing says how an encoder's tokens make an embedding."""


class PoolerNeeded(ChoiceNeeded):
    """An encoder comes without a pooler."""


class CodeNotTrusted(ChoiceNeeded):
    """A model comes with code that was not allowed to run."""


@contextmanager
def ways_out(known: Mapping[type[ChoiceNeeded], str]) -> Iterator[None]:
    """Let a command or a recipe say how a choice is made there.

    Args:
        known: The words that follow the fact, by what is needed.
    """
    try:
        yield
    except ChoiceNeeded as error:
        raise UserError(f"{error.fact}; {known[type(error)]}.") from error


class ProcessLost(UserError):
    """Another process of a distributed run is gone and did not say why, as one that is killed."""

    def __init__(self) -> None:
        super().__init__(
            "Another process of this run has ended, as one does that is killed, or cannot be "
            "reached"
        )


class Ended(Exception):
    """How the command ends is settled.

    Args:
        status: Its exit status.
        told: The line that says why; empty where another process says it.
    """

    def __init__(self, status: int, told: str) -> None:
        super().__init__(told)
        self.status = status
        self.told = told


class PushFailed(Exception):
    """The Hub did not take a model, for reasons that pass; the model is on disk, and the push can
    be repeated.
    """


def refusal(error: BaseException) -> str | None:
    """Return what the system said no to and the way out, in one sentence; None if it was no disk,
    place or memory.
    """
    found = of_the_disk(error)
    if found is None and isinstance(error, OSError) and error.errno in _OF_A_PLACE:
        found = error
    if found is None or found.errno is None:
        short = short_of_memory(error)
        return (
            short
            and f"{short}; take less at a time, such as a smaller batch, or a device with more "
            "memory."
        )
    return f"{found.filename or found.strerror}: {(_OF_THE_DISK | _OF_A_PLACE)[found.errno]}."


def short_of_memory(error: BaseException) -> str | None:
    """Return the fact that memory ran out, and for how much, without a full stop; None if an error
    is another.
    """
    link: BaseException | None = error
    while link is not None:
        told = f"{type(link).__name__}: {link}"
        if isinstance(link, (MemoryError, RuntimeError, OSError)) and _NO_MEMORY.search(told):
            wanted = _WANTED.search(told)
            return f"memory ran out{f' ({wanted[1]} more were wanted)' if wanted else ''}"
        link = link.__cause__ or link.__context__
    return None


@contextmanager
def naming(place: str | os.PathLike[str]) -> Iterator[None]:
    """Name a place in errors of the disk that come without one, as those of writing do, and those
    of libraries.
    """
    try:
        yield
    except Exception as error:
        found = of_the_disk(error)
        if found is None or found.filename is not None:
            raise
        raise OSError(found.errno, found.strerror, os.fspath(place)) from error


def of_the_disk(error: BaseException) -> OSError | None:
    """Return the disk's error behind an error, also where a library tells it in words of
    its own.
    """
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, OSError) and link.errno in _OF_THE_DISK:
            return link
        number = None
        if told := _NUMBER.search(str(link)):
            number = int(told[1] or told[2])
        elif _TORCH_WRITES.search(str(link)):
            number = errno.EIO
        if number in _OF_THE_DISK:
            return OSError(number, os.strerror(number))
        link = link.__cause__ or link.__context__
    return None
