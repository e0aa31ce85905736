"""The model that is evaluated, with what tells it from others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sentence_transformers import SentenceTransformer

from st_jtcse import embedded
from st_jtcse.embedding_hash import embedding_sha256
from st_jtcse.hashing import weight_files_sha256
from st_jtcse.modules.loading import load_sentence_transformer
from st_jtcse.pooling_names import PoolingName


@dataclass(frozen=True)
class Evaluated:
    """A loaded model.

    Args:
        model: The model.
        name: As the user wrote it.
        sha256: Hash of all that decides its embeddings.
        files: Hash of each weight file of a model in a folder, by its path there.
    """

    model: SentenceTransformer
    name: str
    sha256: str
    files: dict[str, str] = field(default_factory=dict)


def load_model(
    name: str,
    *,
    pooling: PoolingName | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    device: str | None = None,
) -> Evaluated:
    """Load a model for evaluation; the arguments are those of :func:`st_jtcse.modules.load_sentence_transformer`."""
    place = embedded.place(name)
    model = load_sentence_transformer(
        name, pooling=pooling, revision=revision, trust_remote_code=trust_remote_code, device=device
    )
    files = weight_files_sha256(Path(place)) if Path(place).is_dir() else {}
    return Evaluated(model, name, embedding_sha256(model), files)
