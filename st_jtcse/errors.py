"""The exceptions a user is meant to meet, told without a traceback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class UserError(Exception):
    """The user's input is at fault; each fault is one sentence that names the place and the way out.

    For example ``"recipe.yaml:9 stages[1].data: expected ..., found .... Do ...."``.
    """

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class ChoiceNeeded(UserError):
    """The user has to say something that nobody can know for him.

    Args:
        fact: What was found, without a full stop.
        way_out: How to say it where no command or recipe names its own way.
    """

    def __init__(self, fact: str, way_out: str) -> None:
        super().__init__(f"{fact}; {way_out}.")
        self.fact = fact


class PoolingNeeded(ChoiceNeeded):
    """Nothing says how an encoder's tokens make an embedding."""


class PoolerNeeded(ChoiceNeeded):
    """An encoder comes without a pooler."""


class CodeNotTrusted(ChoiceNeeded):
    """A model comes with code that was not allowed to run."""


@contextmanager
def ways_out(known: Mapping[type[ChoiceNeeded], str]) -> Iterator[None]:
    """Let a command or a recipe say how a choice is made there.

    Args:
        known: The words that follow the fact, by what is needed.
    """
    try:
        yield
    except ChoiceNeeded as error:
        raise UserError(f"{error.fact}; {known[type(error)]}.") from error


class PushFailed(Exception):
    """The Hub did not take a model, for reasons that pass; the model is on disk, and the push can be repeated."""
