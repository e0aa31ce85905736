"""What a stage may lose on its general sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from st_jtcse.evaluation.kept_neighbours import KEPT
from st_jtcse.recipe.data_blocks import EvaluateSpec
from st_jtcse.records import StageRecord
from st_jtcse.reports.table import number


@dataclass(frozen=True)
class Limits:
    """How many points a set may lose at most.

    Args:
        allowed: The points by set; a set that is not among them may lose any.
        told: What a model does that is beyond them, in words.
    """

    allowed: Mapping[str, float] = field(default_factory=dict)
    told: str = ""

    def beyond(self, before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
        """Return the sets that have lost more, by scores x 100; one that is not defined has."""
        return [
            name for name, most in self.allowed.items() if not before[name] - after[name] <= most
        ]


def kept_lines(record: StageRecord) -> list[tuple[str, str]]:
    """Say of each general set of sentences how many neighbours a stage keeps, with the verdict."""
    least, told = record.kept_neighbours, []
    for name, metric in record.metrics.items():
        if metric != KEPT or name not in record.spearman:
            continue
        share = record.spearman[name]
        beyond = least is not None and share < least
        bound = "" if least is None else f" (at least {least:g})"
        line = f"{record.name} keeps {number(share)} of 100 neighbours in {name}{bound}"
        told.append((line, "worse" if beyond else "equal"))
    return told


def limits_of(evaluate: EvaluateSpec | None, evaluators: Mapping[str, Any]) -> Limits:
    """Return what `retention` and `kept_neighbours` allow, each for the general sets of its
    kind.
    """
    if evaluate is None:
        return Limits()
    allowed: dict[str, float] = {}
    told: dict[str, None] = {}
    for name in evaluate.general:
        if is_kept(evaluators[name]):
            if evaluate.kept_neighbours is not None:
                # The start keeps all of its own.
                allowed[name] = 100 - evaluate.kept_neighbours
                told[f"keeps fewer than {evaluate.kept_neighbours:g} of 100 neighbours"] = None
        elif evaluate.retention is not None:
            allowed[name] = evaluate.retention
            told[f"loses more than {evaluate.retention:g}"] = None
    return Limits(allowed, " or ".join(told))


def recorded_limits(
    evaluate: EvaluateSpec | None, evaluators: Mapping[str, Any]
) -> dict[str, float | None]:
    """Return what a stage's record says of them; nothing without general sets of sentences."""
    if not any(map(is_kept, evaluators.values())):
        return {}
    return {"kept_neighbours": evaluate.kept_neighbours if evaluate else None}


def is_kept(evaluator: Any) -> bool:
    """Whether an evaluator is of plain sentences and the neighbours that they keep."""
    return getattr(evaluator, "metric", None) == KEPT
