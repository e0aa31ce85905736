"""Calls to the Hub that are made again where that can help."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar, cast

from huggingface_hub.errors import HfHubHTTPError

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
# The client's base class of all that can happen between it and a server, its transport library's.
TRANSPORT_ERRORS = cast(
    "tuple[type[Exception], ...]", tuple(base for base in HfHubHTTPError.__bases__ if base is not OSError)
)
WAITS = (1.0, 2.0, 4.0, 8.0)
_LONGEST_WAIT = 60.0


def patiently(call: Callable[[], Result], waits: tuple[float, ...] = WAITS) -> Result:
    """Make a call; again after each wait while the Hub is busy (429), at fault (5xx) or out of reach.

    Args:
        call: The call, which may be made more than once.
        waits: Seconds to wait before each further attempt; a busy Hub's own wish counts more, up to a minute.

    Returns:
        What the call returns.

    Raises:
        HfHubHTTPError: The last attempt's error, or one that another attempt would meet again.
    """
    for wait in waits:
        try:
            return call()
        except TRANSPORT_ERRORS as error:
            asked = _asked_wait(error)
            if asked is None:
                raise
            seconds = min(max(wait, asked), _LONGEST_WAIT)
            logger.warning("The Hub did not answer as hoped (%s); again in %.0f s.", brief(error), seconds)
            time.sleep(seconds)
    return call()


def status_of(error: Exception) -> int | None:
    """Return the HTTP status behind an error; None if no answer came.

    Args:
        error: From the client.
    """
    return getattr(getattr(error, "response", None), "status_code", None)


def brief(error: Exception) -> str:
    """Say in a few words what happened.

    Args:
        error: From the client.
    """
    status = status_of(error)
    return f"status {status}" if status else type(error).__name__


def _asked_wait(error: Exception) -> float | None:
    """Return how long the server asks to wait, 0 if it does not say, None if waiting does not help."""
    status = status_of(error)
    if status is None:
        return 0.0
    if status != 429 and status < 500:
        return None
    asked = str(getattr(error, "response").headers.get("Retry-After", ""))  # noqa: B009  # typed by each transport anew
    return float(asked) if asked.isdecimal() else 0.0
