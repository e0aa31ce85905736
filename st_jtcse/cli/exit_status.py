"""What every command answers the shell."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from st_jtcse.errors import PushFailed, UserError

FAILED, USER_FAULT, INTERRUPTED = 1, 2, 130


def command(
    parser: Callable[[], argparse.ArgumentParser],
    run: Callable[[argparse.Namespace], int | None],
    interrupted: str | Callable[[argparse.Namespace], str],
) -> Callable[..., int]:
    """Make a command, which takes its arguments, by default those of the process, and returns the exit status.

    That is what `run` returned, None for 0; 2 if the user's input is at fault, 1 if the Hub did not take a model, 130
    if interrupted, each told in one line; 1 with its traceback and place for anything else, which is no fault of the
    user. `interrupted` says what an interruption leaves; for some commands the options decide it.
    """

    def main(argv: Sequence[str] | None = None) -> int:
        options = parser().parse_args(argv)
        try:
            return run(options) or 0
        except (UserError, PushFailed) as error:
            status, told = USER_FAULT if isinstance(error, UserError) else FAILED, str(error)
        except KeyboardInterrupt as error:
            where = f" in {error}" if error.args else ""
            left = interrupted if isinstance(interrupted, str) else interrupted(options)
            status, told = INTERRUPTED, f"Interrupted{where}; {left}."
        except Exception as error:
            traceback.print_exception(error)
            # The innermost frame of this package, or of all where the package has none.
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
            ours = [frame for frame in frames if Path(frame.filename).is_relative_to(Path(__file__).parents[1])]
            place = "{0.filename}:{0.lineno}".format((ours or frames)[-1])
            status = FAILED
            told = (
                f"{type(error).__name__} at {place}. If memory, disk and network are well, this is a defect of "
                "st-jtcse or of a library, not of your input: please report it with the lines above."
            )
        sys.stderr.write(f"{told}\n")
        return status

    return main
