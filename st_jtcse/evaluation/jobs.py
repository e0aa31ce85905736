"""What a job, a task that is run once, is given, a model, and what it gives: a record, or why there
is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from sentence_transformers import SentenceTransformer

from st_jtcse import embedded
from st_jtcse.errors import PoolingNeeded
from st_jtcse.evaluation.published import as_published
from st_jtcse.hashing import embedding_sha256, weight_files_sha256
from st_jtcse.modules.loading import load_sentence_transformer
from st_jtcse.records import TaskRecord


@dataclass(frozen=True)
class Evaluated:
    """A loaded model."""

    model: SentenceTransformer
    name: str  # as the user wrote it
    sha256: str  # hash of all that decides its embeddings
    files: dict[str, str] = field(
        default_factory=dict
    )  # hash of each weight file of a model in a folder, by its path
    note: str = ""  # how a plain encoder is pooled that is known by its name


def load_model(name: str, **how: Any) -> Evaluated:
    """Load a model for evaluation; `how` are the arguments of
    :func:`st_jtcse.modules.load_sentence_transformer`.

    A published checkpoint that is a plain encoder is pooled as its authors do. Raises UserError.
    """
    place, note = Path(embedded.place(name)), ""
    try:
        model = load_sentence_transformer(name, **how)
    except PoolingNeeded:
        known = as_published(name)
        if known is None:
            raise
        note = f"{name} {known}"
        model = load_sentence_transformer(
            name, **how | {"pooling": known.pooling, "template": known.template}
        )
    files = weight_files_sha256(place) if place.is_dir() else {}
    return Evaluated(model, name, embedding_sha256(model), files, note)


class Job(Protocol):
    """A task with its data at hand."""

    data: str  # as `TaskRecord.data` has it

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
