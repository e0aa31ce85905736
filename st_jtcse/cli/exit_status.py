"""What every command answers the shell."""

from __future__ import annotations

from collections.abc import Callable

from st_jtcse.cli import console
from st_jtcse.errors import PushFailed, UserError

FAILED = 1
USER_FAULT = 2
INTERRUPTED = 130


def exit_status(run: Callable[[], int | None], interrupted: str) -> int:
    """Run a command and return its exit status, telling faults and interruptions in one line each.

    Args:
        run: The command's work; returns its status, None for 0.
        interrupted: What an interruption leaves, for people.

    Returns:
        What `run` returned, 1 if the Hub did not take a model, 2 if the user's input is at fault, 130 if interrupted.
    """
    try:
        return run() or 0
    except UserError as error:
        console.tell_faults(error)
        return USER_FAULT
    except PushFailed as error:
        console.err.print(error)
        return FAILED
    except KeyboardInterrupt as error:
        where = f" in {error}" if error.args else ""
        console.err.print(f"Interrupted{where}; {interrupted}.")
        return INTERRUPTED
