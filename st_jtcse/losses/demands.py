"""What losses demand of their arguments: their constructors ask, and recipes ask before there is a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from st_jtcse.errors import UserError
from st_jtcse.wording import shown


@dataclass(frozen=True)
class Demand:
    """What one argument must be.

    Args:
        must: The demand behind "NAME must", e.g. ``"be positive"``.
        expected: The demand behind "expected", e.g. ``"a number above 0"``.
        holds: Whether a value of the argument's type meets it.
    """

    must: str
    expected: str
    holds: Callable[[Any], bool]


POSITIVE = Demand("be positive", "a number above 0", lambda value: value > 0)
NOT_NEGATIVE = Demand("not be negative", "a number of at least 0", lambda value: value >= 0)
SHARE = Demand("be at least 0 and below 1", "a number of at least 0 and below 1", lambda value: 0 <= value < 1)

_FINITE = Demand("be finite", "a finite number", math.isfinite)


def one_of(*choices: str) -> Demand:
    """Demand one of these words."""
    words = " or ".join(map(repr, choices)) if len(choices) == 2 else f"one of {', '.join(choices)}"
    return Demand(f"be {words}", words, lambda value: value in choices)


class Misfit(NamedTuple):
    """A value that does not meet its demand.

    Args:
        argument: Its name.
        sentence: For the caller of the constructor.
        expectation: For a recipe, where the key tells the name: ``expected X, found Y. Do Z.``
    """

    argument: str
    sentence: str
    expectation: str


@dataclass(frozen=True)
class Demands:
    """What the arguments of a loss must be; None passes, it stands for a default, and infinity never does.

    Args:
        of: By argument.
        not_all_zero: Weights of which one must be positive.
    """

    of: Mapping[str, Demand]
    not_all_zero: tuple[str, ...] = ()

    def misfits(self, arguments: Mapping[str, Any]) -> Iterator[Misfit]:
        """Compare arguments, all or some, with what they must be.

        Args:
            arguments: Values by name; those of which nothing is demanded are passed over.
        """
        for name, demand in self.of.items():
            value = arguments.get(name)
            demand = _FINITE if value in (math.inf, -math.inf) else demand
            if value is not None and not demand.holds(value):
                yield Misfit(
                    name,
                    f"{name} must {demand.must}, found {shown(value)}.",
                    f"expected {demand.expected}, found {shown(value)}. Correct the value.",
                )
        if self.not_all_zero and all(arguments.get(name) == 0 for name in self.not_all_zero):
            names = f"{', '.join(self.not_all_zero[:-1])} and {self.not_all_zero[-1]}"
            yield Misfit(
                self.not_all_zero[0],
                f"{names} must not all be 0: make one of them positive.",
                f"expected one weight above 0, found 0 for {names}. Make one of them positive.",
            )

    def refuse(self, **arguments: Any) -> None:
        """Refuse arguments that are not what they must be.

        Raises:
            UserError: With a sentence for each.
        """
        sentences = [misfit.sentence for misfit in self.misfits(arguments)]
        if sentences:
            raise UserError(*sentences)
