"""What a route gives back: an answer, or a refusal in the Hub's form."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, value: object, status: int = 200) -> "Answer":
        return cls(
            status,
            json.dumps(value, default=str).encode(),
            {"Content-Type": "application/json; charset=utf-8"},
        )


class Refusal(Exception):
    """An error answer: the message in body and header, the machine-readable code in a header."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: object,
    ) -> None:
        super().__init__(message)
        self.answer = Answer.of_json({"error": message, **more}, status)
        self.answer.headers["X-Error-Message"] = message
        if code is not None:
            self.answer.headers["X-Error-Code"] = code
        self.answer.headers.update(headers or {})
