"""What packages add to ``st-eval``: suites, tasks of their own, and how known models embed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from st_jtcse.evaluation.suites import Row, Suite
from st_jtcse.plugins import imported, installed

if TYPE_CHECKING:
    from st_jtcse.evaluation.jobs import EvaluationJob

# The group under which packages name their protocols.
ENTRY_POINTS = "st_jtcse.protocols"


class Usage(NamedTuple):
    """How a known checkpoint makes an embedding."""

    # Arguments of st_jtcse.modules.load_sentence_transformer.
    how: Mapping[str, Any]
    told: str  # in a phrase that follows the model's name


class EvaluationProtocol:
    """Base of all protocols. What a method does not say is left to the next one, and to MTEB."""

    def suites(self) -> Mapping[str, Suite]:
        """Return tables by the names that ``--suite`` takes."""
        return {}

    def row(self, task: str) -> Mapping[str, Any] | None:
        """Return the row of a task that ``--task`` names; None for one of another protocol.

        Raises UserError for a name that is this protocol's and has no task.
        """
        return None

    def job(self, row: Row, folder: Path | None) -> EvaluationJob | None:
        """Return what runs a row's task; None for one of another protocol.

        Args:
            row: The row, with the subsets and splits of all rows that show its task.
            folder: Holds local copies of data sets.

        Raises UserError where a local file is faulty, DataUnavailable where the data cannot be had.
        """
        return None

    def usage(self, model: str) -> Usage | None:
        """Return how a checkpoint without modules of its own embeds; None for an unknown one.

        Raises UserError for one that cannot be used.
        """
        return None


@cache
def protocols() -> tuple[EvaluationProtocol, ...]:
    """Return the installed packages' protocols; raises UserError where one fails."""
    points = installed(ENTRY_POINTS).values()
    return tuple(imported(point, "a protocol")() for point in points)


@cache
def suites() -> dict[str, Suite]:
    """Return every suite by name, each protocol's in its order."""
    return {name: suite for own in protocols() for name, suite in own.suites().items()}
