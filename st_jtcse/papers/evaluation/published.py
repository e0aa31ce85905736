"""How published checkpoints make an embedding, where the checkpoint does not say it; the table is
published.yaml.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, Field

from st_jtcse.errors import UserError
from st_jtcse.pooling_names import SPOKEN, PoolingName


class Published(BaseModel, extra="forbid", frozen=True):
    """Checkpoints of one kind."""

    models: tuple[str, ...] = Field(
        min_length=1, description="Hub ids; one without an owner is a folder's name."
    )
    pooling: PoolingName | None = Field(None, description="Pooling of the encoder.")
    template: str | None = Field(None, description="Prompt whose mask token is the embedding.")
    out: str | None = Field(None, description="Why none of both gives its embeddings.")
    source: str = Field(description="Where that is said.")

    def __str__(self) -> str:
        """Say it in a phrase."""
        way = (
            SPOKEN[self.pooling] if self.pooling else f"the mask token's state in {self.template!r}"
        )
        return f"embeds by {way}, as published ({self.source})"


@cache
def published() -> tuple[Published, ...]:
    """Return the table."""
    text = Path(__file__).with_name("published.yaml").read_text(encoding="utf-8")
    return tuple(Published(**entry) for entry in yaml.safe_load(text))


def as_published(name: str) -> Published | None:
    """Return how a checkpoint is used, by its Hub id or its folder's name; None if the table does
    not have it.

    Raises UserError for one that cannot be used here.
    """
    folder = Path(name).name if Path(name).is_dir() else None
    known = ((model, entry) for entry in published() for model in entry.models)
    entry = next(
        (entry for model, entry in known if name == model or folder == model.rpartition("/")[2]),
        None,
    )
    if entry is not None and entry.out:
        raise UserError(
            f"{name} cannot be evaluated as published: {entry.out}; name a pooling to try without."
        )
    return entry
