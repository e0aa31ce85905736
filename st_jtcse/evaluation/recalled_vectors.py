"""Vectors of sets that a run scores again and again: what a model has encoded once is recalled
wherever the same model, by its weights and settings, is asked for the same texts in the same way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from sentence_transformers import SentenceTransformer

from st_jtcse import processes
from st_jtcse.hashing import embedding_sha256

# Bytes of all vectors; beyond these the oldest are forgotten.
MOST = 200_000_000


class Recalled:
    """Vectors by the model's hash, the way of encoding and the texts."""

    def __init__(self, most: int = MOST) -> None:
        self.most, self.size = most, 0
        self._found: OrderedDict[tuple[Any, ...], np.ndarray] = OrderedDict()
        self._digests: WeakKeyDictionary[SentenceTransformer, tuple[Any, str]] = WeakKeyDictionary()

    def encode(self, model: SentenceTransformer, encode: partial[Any], texts: list[str]) -> Any:
        """Return the texts' vectors, as they were encoded first."""
        how = encode.func.__name__, tuple(sorted(encode.keywords.items()))
        key = self._digest(model), str(model.device), how, tuple(texts)
        if key not in self._found:
            vectors = encode(texts)
            if not isinstance(vectors, np.ndarray):
                return vectors
            self._keep(key, vectors)
            return vectors
        return self._found[key].copy()

    def forget_models(self) -> None:
        """Hash models anew, whose weights may have changed unnoticed."""
        self._digests.clear()

    def _keep(self, key: tuple[Any, ...], vectors: np.ndarray) -> None:
        if vectors.nbytes > self.most:
            return
        self._found[key] = vectors.copy()
        self.size += vectors.nbytes
        while self.size > self.most:
            self.size -= self._found.popitem(last=False)[1].nbytes

    def _digest(self, model: SentenceTransformer) -> str:
        """Return the model's hash, computed anew where a weight was written or a module is
        another.
        """
        tensors = [*model.parameters(), *model.buffers()]
        stamp = (
            [(tensor.data_ptr(), tensor._version) for tensor in tensors],
            [id(module) for module in model.modules()],
            [model.max_seq_length, model.truncate_dim, model.default_prompt_name],
            dict(model.prompts),
        )
        known = self._digests.get(model)
        if known is None or known[0] != stamp:
            known = self._digests[model] = stamp, embedding_sha256(model)
        return known[1]


_RECALLED: ContextVar[Recalled | None] = ContextVar("recalled", default=None)


@contextmanager
def recalling() -> Iterator[None]:
    """Recall vectors meanwhile; of several processes each encodes, for they do so together."""
    before = _RECALLED.set(Recalled() if processes.count() == 1 else None)
    try:
        yield
    finally:
        _RECALLED.reset(before)


@contextmanager
def not_recalling() -> Iterator[None]:
    """Recall nothing while a model is trained: its weights change, and its precision may be
    another.
    """
    outer = _RECALLED.get()
    before = _RECALLED.set(None)
    try:
        yield
    finally:
        _RECALLED.reset(before)
        if outer is not None:
            outer.forget_models()


def encode_recalled(
    model: SentenceTransformer, encode: Callable[..., Any], texts: Sequence[str]
) -> Any:
    """Return what one of the model's methods, with its settings, makes of texts."""
    recalled = _RECALLED.get()
    if recalled is None or not isinstance(encode, partial) or _is_patched(model):
        return encode(list(texts))
    return recalled.encode(model, encode, list(texts))


def _is_patched(model: SentenceTransformer) -> bool:
    """Whether a model computes otherwise than its weights and settings say: accelerate leaves one
    that it trained in bfloat16 with a forward of its own.
    """
    return any("forward" in vars(module) for module in model.modules())
