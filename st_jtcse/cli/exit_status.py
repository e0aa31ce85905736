"""What every command answers the shell."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

import st_jtcse
from st_jtcse.errors import (
    DataUnavailable,
    Ended,
    ProcessLost,
    PushFailed,
    UserError,
    refusal,
)

FAILED, USER_FAULT, NO_DATA, INTERRUPTED = 1, 2, 3, 130
_LONGEST = 200  # Characters of a library's message.


def command(
    parser: Callable[[], argparse.ArgumentParser],
    run: Callable[[argparse.Namespace], int | None],
    interrupted: str | Callable[[argparse.Namespace], str],
) -> Callable[..., int]:
    """Make a command, which takes its arguments, by default those of the process, and returns the
    exit status.

    That is what `run` returned, None for 0; 2 if the user's input, disk or place is at fault or
    another process of the run is gone, 3 if a data set cannot be had, 1 if the Hub did not take a
    model, 130 if interrupted, each told in one line; 1 for anything else, which is no fault of the
    user: told in a line that names its place and the file that its traceback was kept in.
    `interrupted` says what an interruption leaves; for some commands the options decide it. Where
    nobody reads stdout any more, the command ends with 1.
    """

    def main(argv: Sequence[str] | None = None) -> int:
        left = "nothing was begun"
        try:
            try:
                if sys.stdout is None:
                    raise UserError("stdout is closed; lead it to a file, or to /dev/null.")
                options = _options(parser(), argv)
                left = interrupted if isinstance(interrupted, str) else interrupted(options)
                with _interruption:
                    return run(options) or 0
            finally:
                # Here, where it can be told, and not when Python ends.
                _deliver_output()
        except (Exception, KeyboardInterrupt) as error:
            status, told = outcome(error, left)
        if not told:
            return status
        with suppress(AttributeError):  # A closed stderr is None.
            with suppress(OSError):
                sys.stderr.write(f"{told}\n")
            _flush(sys.stderr)
        return status

    return main


def _options(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    version = f"%(prog)s (st-jtcse) {st_jtcse.__version__}"
    parser.add_argument("--version", action="version", version=version)
    if "_ARGCOMPLETE" in os.environ:  # A shell asks how the line may go on.
        import argcomplete

        argcomplete.autocomplete(parser)
    return parser.parse_args(argv)


def outcome(error: BaseException, left: str) -> tuple[int, str]:
    """Return the exit status of a command that an error ends, and the line that says why; `left`
    is what an interruption leaves.
    """
    if isinstance(error, Ended):
        return error.status, error.told
    if isinstance(error, KeyboardInterrupt) or _interruption.has_come:
        error = error if isinstance(error, KeyboardInterrupt) else KeyboardInterrupt()
        where = f" in {error}" if error.args else ""
        return INTERRUPTED, f"Interrupted{where}; {left}."
    if isinstance(error, ProcessLost):
        return USER_FAULT, f"{error}; {left}."
    if isinstance(error, DataUnavailable):
        return NO_DATA, str(error)
    if isinstance(error, UserError):
        return USER_FAULT, str(error)
    if isinstance(error, PushFailed):
        return FAILED, str(error)
    if told := refusal(error):
        return USER_FAULT, told
    return FAILED, _unexpected(error)


class _Interruption:
    """Sees to it that a Ctrl-C ends the command of its `with` block.

    Libraries that are being imported pass over one, or make another error of it.
    """

    has_come = False

    def __enter__(self) -> None:
        self.has_come = False
        self._previous = signal.getsignal(signal.SIGINT)
        in_main = threading.current_thread() is threading.main_thread()
        self._is_ours = in_main and self._previous is signal.default_int_handler
        if self._is_ours:
            signal.signal(signal.SIGINT, self._note)
            sys.meta_path.insert(0, self)

    def __exit__(self, *failure: object) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, self._previous)
            sys.meta_path.remove(self)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.has_come = True
        raise KeyboardInterrupt

    def find_spec(self, *module: object) -> None:
        """Find no module, but raise again what was passed over."""
        in_main = threading.current_thread() is threading.main_thread()
        if self.has_come and in_main and sys.exception() is None:
            raise KeyboardInterrupt


_interruption = _Interruption()


def _deliver_output() -> None:
    error = _flush(sys.stdout) if sys.stdout is not None else None
    if error is not None and error.errno == errno.EPIPE:
        raise SystemExit(FAILED)  # As `head` leaves it: nobody is there to be told.
    if error is not None:
        raise UserError(refusal(OSError(error.errno, "", "stdout")) or f"stdout: {error.strerror}.")


def _flush(output: IO[str]) -> OSError | None:
    """Write what an output still holds; one that cannot take it is led nowhere, lest Python fails
    on it at its end.
    """
    try:
        output.flush()
    except OSError as error:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), output.fileno())
        return error
    return None


def _unexpected(error: BaseException) -> str:
    """Keep an error's traceback in a file, or print it where there can be none, and return a line
    about it.
    """
    # The innermost frame of this package, or of all where the package has none.
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__
    ]
    ours = [
        frame for frame in frames if Path(frame.filename).is_relative_to(Path(__file__).parents[1])
    ]
    place = "{0.filename}:{0.lineno}".format((ours or frames)[-1])
    message = " ".join(str(error).split())
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]}..."
    said = f" ({message})" if message else ""
    trace = "".join(traceback.format_exception(error))
    try:
        number, kept = tempfile.mkstemp(prefix="st-jtcse-", suffix=".txt")
        with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{shlex.join(sys.argv)}\n\n{trace}")
    except OSError:
        sys.stderr.write(trace)
        kept = "the lines above"
    return (
        f"{type(error).__name__} at {place}{said}. Unless memory, disk or network failed, this is "
        f"a defect of st-jtcse or of a library, not a fault of yours: please report it with {kept}."
    )
