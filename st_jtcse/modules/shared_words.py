"""Words that share their vectors, where a stand-in for a model keeps a part of its table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import nn

# What the configuration of a stand-in calls the words of the whole model.
WORDS_OF_WHOLE = "words_of_whole"

_kept: ContextVar[int | None] = ContextVar("_kept", default=None)


@contextmanager
def words_shared(kept: int) -> Iterator[None]:
    """Let models loaded meanwhile have tables of `kept` rows for more words than that."""
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)


def share_words(model: nn.Module) -> bool:
    """Let the words beyond a table of so many rows have the vectors of those within; tell whether
    there was such a table. Nothing happens outside :func:`words_shared`.
    """
    kept = _kept.get()
    tables = [
        module
        for module in model.modules()
        if isinstance(module, nn.Embedding) and module.num_embeddings == kept
    ]
    for table in tables:
        if not table._forward_pre_hooks:
            table.register_forward_pre_hook(lambda _, given: (given[0] % kept,))
    return bool(tables)
