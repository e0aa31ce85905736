"""Calls to the Hub that are made again where that can help."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from huggingface_hub.errors import HfHubHTTPError

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
# What the client raises: its transport library's base class of all errors, whichever library that is; Xet's errors are
# Python's; and the failure of a single file's upload has the error itself as its cause.
HUB_ERRORS = cast(
    "tuple[type[Exception], ...]",
    (*(base for base in HfHubHTTPError.__bases__ if base is not OSError), ConnectionError, RuntimeError),
)
# Seconds before each further attempt.
WAITS = (1.0, 2.0, 4.0, 8.0)
_LONGEST_WAIT = 60.0


def patiently(call: Callable[[], Result]) -> Result:
    """Make a call; again, up to four times, while the Hub is busy (429), at fault (5xx) or out of reach.

    The client repeats some of its calls by itself; those that it makes once only, a commit among them, come here.

    Returns:
        What the call returns.

    Raises:
        HfHubHTTPError: The last attempt's error, or one that another attempt would meet again.
    """
    for wait in WAITS:
        try:
            return call()
        except HUB_ERRORS as error:
            asked = _asked_wait(error)
            if asked is None:
                raise
            seconds = min(max(wait, asked), _LONGEST_WAIT)
            logger.warning("The Hub did not answer as hoped (%s); again in %.0f s.", brief(error), seconds)
            time.sleep(seconds)
    return call()


def status_of(error: Exception) -> int | None:
    """Return the HTTP status behind an error; None if no answer came."""
    while isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return getattr(getattr(error, "response", None), "status_code", None)


def brief(error: Exception) -> str:
    """Say in a few words what happened."""
    status = status_of(error)
    return f"status {status}" if status else type(error).__name__


def _asked_wait(error: Exception) -> float | None:
    """Return how long the server asks to wait, 0 if it does not say, None if waiting does not help."""
    if isinstance(error, RuntimeError):
        return None  # The client itself has been patient.
    status = status_of(error)
    if status is not None and status != 429 and status < 500:
        return None
    headers: Any = getattr(getattr(error, "response", None), "headers", {})
    asked = headers.get("Retry-After", "")
    return float(asked) if asked.isdecimal() else 0.0
