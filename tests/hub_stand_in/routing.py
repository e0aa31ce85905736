"""One request as the routes see it, and the table of routes."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from hub_stand_in.accounts import Account
from hub_stand_in.answers import Answer, Refusal

if TYPE_CHECKING:
    from hub_stand_in.hub import HubStandIn
    from hub_stand_in.repositories import Repository

PARTS = {"repo": r"[^/]+(?:/[^/]+)?", "slug": r"[^/]+/[^/]+", "path": r".+"}


@dataclass
class Exchange:
    """A request that has arrived whole."""

    hub: "HubStandIn"
    method: str
    path: str
    query: dict[str, list[str]]
    account: Account | None
    body: bytes
    range: str | None

    def json(self) -> Any:
        return json.loads(self.body)

    def form(self) -> dict[str, list[str]]:
        return parse_qs(self.body.decode())

    def flag(self, name: str) -> bool:
        return self.query.get(name, [""])[0].lower() in ("true", "1")

    def signed_in(self) -> Account:
        if self.account is None:
            raise Refusal(401, "Invalid username or password.")
        return self.account

    def readable(self, repo_id: str) -> "Repository":
        """The repository, if this account may know of it: the Hub does not tell private from
        missing.
        """
        repository = self.hub.repositories.get(repo_id)
        if repository is not None and (
            not repository.private
            or (self.account is not None and self.account.sees(repository.namespace))
        ):
            return repository
        if self.account is None:
            raise Refusal(401, "Invalid username or password.", "RepoNotFound")
        raise Refusal(404, "Repository not found", "RepoNotFound")

    def writable(
        self,
        repo_id: str,
        message: str = "Forbidden: pass `create_pr=1` as a query parameter to create a Pull "
        "Request",
    ) -> "Repository":
        repository = self.readable(repo_id)
        if self.account is None:
            # Over https the client takes any 401 of a repository's address for a missing
            # repository; on loopback only the code tells it so.
            raise Refusal(401, "Invalid username or password.", "RepoNotFound")
        if not self.account.writes(repository.namespace):
            raise Refusal(403, message)
        return repository


Route = Callable[..., Answer]


class Routes:
    """Routes of one host; of several that match, the first."""

    def __init__(self) -> None:
        self._routes: list[tuple[str, re.Pattern[str], Route]] = []

    @classmethod
    def together(cls, *tables: "Routes") -> "Routes":
        routes = cls()
        for table in tables:
            routes._routes += table._routes
        return routes

    def add(self, method: str, template: str) -> Callable[[Route], Route]:
        """Register a route such as `/api/models/{repo}/commit/{revision}`."""
        pattern = re.sub(
            r"\\\{(\w+)\\\}",
            lambda match: f"(?P<{match[1]}>{PARTS.get(match[1], '[^/]+')})",
            re.escape(template),
        )

        def register(function: Route) -> Route:
            self._routes.append((method, re.compile(pattern), function))
            return function

        return register

    def answer(self, exchange: Exchange) -> Answer:
        method = "GET" if exchange.method == "HEAD" else exchange.method
        for route_method, pattern, function in self._routes:
            match = pattern.fullmatch(exchange.path)
            if match and method == route_method:
                return function(
                    exchange, **{name: unquote(value) for name, value in match.groupdict().items()}
                )
        raise Refusal(404, f"The stand-in knows no {exchange.method} {exchange.path}")
