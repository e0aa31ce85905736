"""Who a token belongs to and what it may do."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hub_stand_in.answers import Refusal


@dataclass(frozen=True)
class Account:
    name: str
    organizations: tuple[str, ...]
    role: Literal["write", "read"]

    def sees(self, namespace: str) -> bool:
        return namespace in (self.name, *self.organizations)

    def writes(self, namespace: str) -> bool:
        return self.role == "write" and self.sees(namespace)

    def describe(self) -> dict[str, object]:
        """What whoami answers."""
        return {
            "type": "user",
            "id": f"id-of-{self.name}",
            "name": self.name,
            "fullname": self.name,
            "orgs": [
                {
                    "type": "org",
                    "id": f"id-of-{name}",
                    "name": name,
                    "fullname": name,
                    "roleInOrg": self.role,
                }
                for name in self.organizations
            ],
            "auth": {
                "type": "access_token",
                "accessToken": {"displayName": "tests", "role": self.role},
            },
        }


class Accounts:
    """Three tokens: of a member who may write, of the same member read-only, and of a stranger who
    may write.
    """

    def __init__(self, user: str, organizations: Iterable[str]) -> None:
        self.write_token = "token-that-writes"
        self.read_token = "token-that-reads"
        self.stranger_token = "token-of-a-stranger"
        organizations = tuple(organizations)
        self._by_token = {
            self.write_token: Account(user, organizations, "write"),
            self.read_token: Account(user, organizations, "read"),
            self.stranger_token: Account("stranger", (), "write"),
        }

    def of(self, authorization: str | None) -> Account | None:
        """The account of an Authorization header, None for an anonymous request."""
        if authorization is None:
            return None
        account = self._by_token.get(authorization.removeprefix("Bearer "))
        if account is None:
            # The client tells a wrong token from a missing repository by these very words.
            raise Refusal(401, "Invalid credentials in Authorization header")
        return account
