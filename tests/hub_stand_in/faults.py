"""Faults to order and the log of requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from threading import Lock

# What a client sees of the Hub where the test orders no message of its own.
MESSAGES = {
    401: "Invalid credentials in Authorization header",
    403: "You don't have the required permissions for this operation",
    408: "Request Timeout",
    413: "Payload Too Large",
    429: "We had to rate limit you",
    500: "Internal Error - We're working hard to fix this as soon as possible!",
    503: "Service Temporarily Unavailable",
}


@dataclass(frozen=True)
class LoggedRequest:
    """One request; `status` is None where the connection was closed before an answer. Never a
    token's text.
    """

    method: str
    path: str
    status: int | None
    token_sent: bool
    range: str | None


def matches(pattern_method: str, pattern: str, method: str, path: str) -> bool:
    return pattern_method in ("*", method) and fnmatchcase(path, pattern)


@dataclass(frozen=True)
class Failure:
    """Answers an error and does nothing."""

    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """Closes the connection after so many bytes of the request's body, or of the answer's where it
    has none.

    An upload always ends in a reset connection. A download ends as if the server had closed it in
    order; with `reset`, in a reset one.
    """

    after_bytes: int
    reset: bool


@dataclass(frozen=True)
class LostAnswer:
    """Does what was asked and closes the connection without an answer."""


Fault = Failure | Cut | LostAnswer


@dataclass
class _Order:
    method: str
    pattern: str
    fault: Fault
    times: int


class Faults:
    """Ordered faults, the first order that matches first."""

    def __init__(self) -> None:
        self._orders: list[_Order] = []
        self._lock = Lock()

    def order(self, method: str, pattern: str, fault: Fault, times: int) -> None:
        with self._lock:
            self._orders.append(_Order(method, pattern, fault, times))

    def take(self, method: str, path: str) -> Fault | None:
        """The fault for this request, which is then used up once."""
        with self._lock:
            for order in self._orders:
                if order.times > 0 and matches(order.method, order.pattern, method, path):
                    order.times -= 1
                    return order.fault
        return None
