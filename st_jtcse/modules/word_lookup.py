"""The word embeddings of a batch looked up once, where it is encoded in parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn import functional as F
from transformers import PreTrainedModel

from st_jtcse.towers.modeling_tower_layers import LAYERS, with_forward


@contextmanager
def words_looked_up_once(model: nn.Module, input_ids: Tensor) -> Iterator[None]:
    """Have the encoders in a model read words of a batch, (B, T), from a table of its own words:
    the same embeddings.

    The parts' gradients are then as long as that table, and only their sum as long as the
    vocabulary. It is the same to the bit: each part's and theirs are added up in the same order.
    """
    lookups: dict[nn.Embedding, None] = {}
    if torch.is_grad_enabled() and not _sharded(model):
        lookups = dict.fromkeys(_lookups(model))
    words = input_ids.unique() if lookups else input_ids
    with ExitStack() as replaced:
        for lookup in lookups:
            forward = partial(_embeddings, words, lookup(words))
            replaced.enter_context(with_forward(lookup, forward))
        yield


def _embeddings(words: Tensor, table: Tensor, input_ids: Tensor) -> Tensor:
    return F.embedding(torch.searchsorted(words, input_ids.contiguous()), table)


def _lookups(model: nn.Module) -> Iterator[nn.Embedding]:
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and part.config.model_type in LAYERS:
            lookup = part.get_input_embeddings()
            if type(lookup) is not nn.Embedding:
                continue
            # Hooks read and change what goes in and comes out, row by row of the batch.
            if lookup._forward_hooks or lookup._forward_pre_hooks:
                continue
            if lookup.weight.requires_grad and not lookup.scale_grad_by_freq:
                yield lookup


def _sharded(model: nn.Module) -> bool:
    """Say whether weights of a model are whole only where its modules run (FSDP)."""
    return any(isinstance(part, FSDPModule | FullyShardedDataParallel) for part in model.modules())
