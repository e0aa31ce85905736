"""The stand-in itself: two ports, what it keeps, faults to order, the environment of a client's
process.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import RLock, Thread

from hub_stand_in import collection_routes, commit_routes, model_routes, storage_routes
from hub_stand_in.accounts import Accounts
from hub_stand_in.connection import Server
from hub_stand_in.faults import MESSAGES, Cut, Failure, Faults, LoggedRequest, LostAnswer, matches
from hub_stand_in.repositories import Repository
from hub_stand_in.routing import Routes

HUB_ROUTES = Routes.together(commit_routes.routes, collection_routes.routes, model_routes.routes)


class HubStandIn:
    """A Hub on loopback; a context manager.

    `repositories`, `collections` and `requests` may be read at any time: what a push left, and what
    it asked. Methods and paths of faults and of `count` are patterns as in a shell: "*" stands for
    any method or any part of a path. Large files are at "/upload/ORG/NAME/SHA256" and
    "/download/ORG/NAME/SHA256/FILE".
    """

    def __init__(self, user: str = "tester", organizations: Iterable[str] = ("org",)) -> None:
        self.accounts = Accounts(user, organizations)
        self.write_token = self.accounts.write_token
        self.read_token = self.accounts.read_token
        self.stranger_token = self.accounts.stranger_token
        self.repositories: dict[str, Repository] = {}
        self.collections: dict[str, collection_routes.Collection] = {}
        self.requests: list[LoggedRequest] = []
        self.faults = Faults()
        # One request at a time changes something.
        self.lock = RLock()
        self._hub = Server(self, HUB_ROUTES)
        self._storage = Server(self, storage_routes.routes)

    @property
    def endpoint(self) -> str:
        return self._hub.endpoint

    @property
    def storage_endpoint(self) -> str:
        """Where large files are: another origin, to which a client must not send its token."""
        return self._storage.endpoint

    def __enter__(self) -> "HubStandIn":
        for server in (self._hub, self._storage):
            Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._hub.close()
        self._storage.close()

    def fail(
        self,
        method: str,
        path: str,
        *,
        status: int,
        times: int = 1,
        headers: Mapping[str, str] | None = None,
        message: str | None = None,
    ) -> None:
        """The next `times` such requests get an error and do nothing."""
        self.faults.order(
            method, path, Failure(status, message or MESSAGES[status], headers or {}), times
        )

    def cut(
        self, method: str, path: str, *, after_bytes: int, times: int = 1, reset: bool = False
    ) -> None:
        """The next `times` such requests lose their connection in the middle of what is sent, up or
        down.

        An upload's connection is always reset; a download's is closed in order, or reset with
        `reset`.
        """
        self.faults.order(method, path, Cut(after_bytes, reset), times)

    def lose_answer(self, method: str, path: str, *, times: int = 1) -> None:
        """The next `times` such requests are carried out, but their answer never arrives."""
        self.faults.order(method, path, LostAnswer(), times)

    def heal(self) -> None:
        """Call off every fault that is still ordered."""
        self.faults = Faults()

    def count(self, method: str, path: str) -> int:
        """How many such requests arrived, failed and cut ones included."""
        return sum(matches(method, path, request.method, request.path) for request in self.requests)

    def environment(self, home: Path, token: str | None = None) -> dict[str, str]:
        """Environment of a process that knows this Hub alone and keeps everything it caches under
        `home`.

        Settings and tokens of whoever runs the tests stay outside; without `token` the process is
        anonymous.
        """
        foreign = ("HF_", "HUGGING", "TRANSFORMERS_", "MTEB_", "XDG_")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith(foreign) and "PROXY" not in name.upper()
        }
        ours = {
            "HOME": str(home),
            "HF_HOME": str(home / "huggingface"),
            "HF_ENDPOINT": self.endpoint,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        return {**kept, **ours, **({"HF_TOKEN": token} if token is not None else {})}
