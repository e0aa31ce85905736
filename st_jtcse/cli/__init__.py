"""The commands."""

import sys
from types import TracebackType


def _tell_interruption(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Tell an interruption before the command began as the command would."""
    if not issubclass(kind, KeyboardInterrupt):
        return sys.__excepthook__(kind, error, trace)
    sys.stderr.write("Interrupted; nothing was begun.\n")
    sys.exit(130)


# Imports take time enough for a Ctrl-C; `exit_status` is one of them.
if sys.excepthook is sys.__excepthook__:
    sys.excepthook = _tell_interruption
