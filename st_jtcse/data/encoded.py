"""A model's embeddings of sentences, computed once: models that end differently share the work of
their common encoder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from datasets import Dataset, Image
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from torch import nn

from st_jtcse.data.shards import Computation, cached_columns, finished_file
from st_jtcse.hashing import embedding_sha256

Vectors = npt.NDArray[np.float32]
BATCH = 64
SHARD = 10_000  # Texts.
_KEY = "sentence_embedding"


@dataclass(frozen=True, eq=False)
class Encoded:
    """A model's embeddings of sentences, read from the disk as they are asked for.

    Args:
        rows: What the encoder gives, (n, H), a column that is cut like an array.
        ending: What the model does with it.
    """

    rows: Any
    ending: Callable[[Vectors], Vectors]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> Vectors:
        return self.ending(np.asarray(self.rows[part], np.float32))


def encoded(
    model: SentenceTransformer, sentences: Dataset, sentences_sha256: str, cache_dir: Path
) -> Encoded:
    """Return a model's embeddings of sentences, from a file in `cache_dir` where it has them.

    What the file holds is the encoder's, before the model's last Dense and Normalize modules: those
    cost nothing, and a model that has others behind the same encoder uses the file again.

    Args:
        model: Any model of Sentence-Transformers.
        sentences: With the column ``sentence``.
        sentences_sha256: Their hash.
        cache_dir: Safe to delete.

    Raises:
        UserError: The disk is full, or closed.
    """
    job, ending = _job(model, sentences, sentences_sha256)
    return _read(cached_columns(job, cache_dir), ending)


def kept_vectors(
    model: SentenceTransformer, sentences: Dataset, sentences_sha256: str, cache_dir: Path
) -> Encoded | None:
    """Return what :func:`encoded` does, where `cache_dir` has it already."""
    job, ending = _job(model, sentences, sentences_sha256)
    file = finished_file(job, cache_dir)
    if file is None:
        return None
    return _read(Dataset.from_file(str(file)), ending)


def shard_of(sentences: Dataset) -> int:
    """Return how many sentences are encoded between two savings."""
    # The images of a shard are open all at once.
    if isinstance(sentences.features["sentence"], Image):
        return 256
    return SHARD


def split(
    model: SentenceTransformer,
) -> tuple[SentenceTransformer, Callable[[Vectors], Vectors]]:
    """Return a model without its last Dense and Normalize modules, and what those do."""
    modules = list(model)
    count = len(modules)
    while count > 1 and _maps_embeddings(modules[count - 1]):
        count -= 1
    if count == len(modules) or model.truncate_dim is not None:
        return model, lambda vectors: vectors
    # Narrower where it is given than where it is read.
    prompts: Any = model.prompts
    encoder = SentenceTransformer(
        modules=modules[:count],
        device=str(model.device),
        prompts=prompts,
        default_prompt_name=model.default_prompt_name,
    )
    # It computes what it did: modules that are shared keep their mode.
    encoder.train(model.training)
    ending = nn.Sequential(*modules[count:])
    kind = next((weight.dtype for weight in model.parameters()), torch.float32)

    @torch.inference_mode()
    def finish(vectors: Vectors) -> Vectors:
        tensor = torch.from_numpy(np.ascontiguousarray(vectors))
        features = {_KEY: tensor.to(model.device, kind)}
        found: npt.NDArray[Any] = ending(features)[_KEY].float().cpu().numpy()
        return found

    return encoder, finish


def _job(
    model: SentenceTransformer, sentences: Dataset, sentences_sha256: str
) -> tuple[Computation, Callable[[Vectors], Vectors]]:
    encoder, ending = split(model)

    def encode(texts: list[str]) -> pa.Table:
        vectors = np.asarray(encoder.encode(texts, batch_size=BATCH, show_progress_bar=False))
        flat = pa.array(vectors.astype(np.float32).ravel())
        return pa.table({"vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])})

    settings = {
        "sentences": sentences_sha256,
        "model": embedding_sha256(encoder),
        "batch_size": BATCH,
    }
    size = 4 * int(encoder.get_embedding_dimension() or 0)
    job = Computation("vectors", settings, sentences, encode, shard_of(sentences), row_bytes=size)
    return job, ending


def _read(columns: Dataset, ending: Callable[[Vectors], Vectors]) -> Encoded:
    return Encoded(columns.with_format("numpy")["vector"], ending)


def _maps_embeddings(module: nn.Module) -> bool:
    if isinstance(module, Dense):
        return module.module_input_name == module.module_output_name == _KEY
    return isinstance(module, Normalize)
