"""The model that is evaluated, with what tells it from others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from st_jtcse import embedded
from st_jtcse.embedding_hash import embedding_sha256
from st_jtcse.hashing import weight_files_sha256
from st_jtcse.modules.loading import load_sentence_transformer


@dataclass(frozen=True)
class Evaluated:
    """A loaded model."""

    model: SentenceTransformer
    name: str  # as the user wrote it
    sha256: str  # hash of all that decides its embeddings
    files: dict[str, str] = field(default_factory=dict)  # hash of each weight file of a model in a folder, by its path


def load_model(name: str, **how: Any) -> Evaluated:
    """Load a model for evaluation; `how` are the arguments of :func:`st_jtcse.modules.load_sentence_transformer`."""
    place = Path(embedded.place(name))
    model = load_sentence_transformer(name, **how)
    return Evaluated(model, name, embedding_sha256(model), weight_files_sha256(place) if place.is_dir() else {})
