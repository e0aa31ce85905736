"""Jobs: tasks that are run once, on a loaded model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from sentence_transformers import SentenceTransformer

from st_jtcse.records import TaskRecord


@dataclass(frozen=True)
class Evaluated:
    """A loaded model."""

    model: SentenceTransformer
    name: str  # as the user wrote it
    sha256: str  # hash of all that decides its embeddings
    # Hash of each weight file of a model in a folder, by its path.
    files: dict[str, str] = field(default_factory=dict)
    note: str = ""  # how a plain encoder is pooled that is known by its name


class EvaluationJob(Protocol):
    """A task with its data at hand."""

    @property
    def data(self) -> str:
        """Which data it runs on, as `TaskRecord.data` has it."""

    def run(
        self, context: Context, earlier: TaskRecord | None, keep: Callable[[TaskRecord], object]
    ) -> TaskRecord:
        """Evaluate the model.

        Args:
            context: The model.
            earlier: What an earlier run gave on the same data.
            keep: Takes what is known so far, for a run that is cut off.
        """


@dataclass
class Context:
    """The model as the protocols want it."""

    evaluated: Evaluated
    batch_size: int

    @cached_property
    def encoder(self) -> Any:
        """MTEB's view of the model; it remembers vectors from task to task."""
        from st_jtcse.evaluation.mteb_models import UniqueTextEncoder

        return UniqueTextEncoder(self.evaluated.model, self.evaluated.name)
