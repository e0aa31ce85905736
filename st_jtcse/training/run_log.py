"""run.log, the file that takes what a run and its libraries have to say beside what the terminal shows."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOG = "run.log"
logger = logging.getLogger(__name__)


class _LogFile(logging.FileHandler):
    """Gives up at the first line that the file does not take."""

    def handleError(self, record: logging.LogRecord) -> None:
        logging.root.removeHandler(self)
        _tell(self.baseFilename, sys.exception())


@contextmanager
def run_log(folder: Path) -> Iterator[None]:
    """Append all that is logged to a folder's run.log; where it cannot be written that is said once, and no fault."""
    path = folder / LOG
    try:
        handler = _LogFile(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        _tell(path, error)
        yield
        return
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.root.addHandler(handler)
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
        with suppress(OSError):  # What a full disk did not take is told already.
            handler.close()


def _tell(path: object, error: BaseException | None) -> None:
    reason = getattr(error, "strerror", None) or error
    logger.warning("%s cannot be written (%s); the run goes on without it.", path, reason)
