"""The last layer of an encoder for its first row alone, where a model in training reads
no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn import functional as F
from transformers.modeling_outputs import BaseModelOutput

from st_jtcse.modules.pooler_head import PoolerModulusHead
from st_jtcse.modules.training_head import TrainingHead
from st_jtcse.towers.modeling_tower_layers import (
    LAYERS,
    FirstRow,
    for_first_row,
    in_forward,
    with_forward,
)

# Modules that read of the tokens nothing but what they are pooled to.
_BEHIND = (Pooling, PoolerModulusHead, TrainingHead, Normalize)
_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


@contextmanager
def first_row_alone(model: nn.Module) -> Iterator[None]:
    """Have a CLS-pooled model in training compute its last layer for the row that is read: the same
    embeddings.

    Dropout draws what it draws for all rows, so that the others miss nothing but their computation.
    A model of another form, or one that FSDP1 shards or that checkpoints its activations, is left
    as it is.
    """
    tower = _tower(model)
    if tower is None or "forward" in vars(tower):
        yield
        return
    whole = tower.forward

    def forward(**inputs: Any) -> Any:
        given = {key for key, value in inputs.items() if value is not None} - {"return_dict"}
        if tower.training and {"input_ids", "attention_mask"} <= given <= _INPUTS:
            return BaseModelOutput(
                last_hidden_state=_first_row(tower, **{key: inputs[key] for key in given})
            )
        return whole(**inputs)

    with with_forward(tower, forward):
        yield


def checkpoints_activations(model: nn.Module) -> bool:
    """Say whether the backward pass of a model computes its layers again (gradient
    checkpointing).
    """
    return any(getattr(part, "gradient_checkpointing", False) for part in model.modules())


def _tower(model: nn.Module) -> Any:
    """Return the encoder whose first row alone is read; None where that is not so."""
    model = getattr(model, "module", model)
    if not isinstance(model, SentenceTransformer) or type(model[0]) is not Transformer:
        return None
    tower: Any = model[0].model
    config: Any = getattr(tower, "config", None)
    if getattr(config, "model_type", None) not in LAYERS or not hasattr(tower, "embeddings"):
        return None
    if not _reads_first_row(list(model)[1:]) or model.tokenizer.padding_side != "right":
        return None
    if config.output_hidden_states or getattr(config, "is_decoder", False):
        return None
    sharded = any(isinstance(part, FullyShardedDataParallel) for part in tower.modules())
    if sharded or checkpoints_activations(tower):
        return None
    return tower


def _reads_first_row(behind: Sequence[nn.Module]) -> bool:
    """Say whether modules behind an encoder read its first row, a prompt's too, and no other."""
    poolings = [module for module in behind if isinstance(module, Pooling)]
    if [module.pooling_mode for module in poolings] != ["cls"]:
        return False
    return poolings[0].include_prompt and all(map(_reads_no_tokens, behind))


def _reads_no_tokens(module: nn.Module) -> bool:
    return isinstance(module, _BEHIND) or (
        type(module) is Dense and getattr(module, "module_input_name", None) == "sentence_embedding"
    )


def _first_row(tower: Any, **inputs: Any) -> Tensor:
    """Run a tower: its first row behind the last layer, (B, 1, H)."""
    way = LAYERS[tower.config.model_type](tower, **inputs)
    hidden = way.start
    *before, last = way.layers
    for layer in before:
        hidden = way.run(layer, hidden)

    run = for_first_row(way, last, _FirstRow)
    with _drawing_all_rows(last, hidden.shape[1]):
        return way.end(in_forward([last], run)(hidden))


class _FirstRow(FirstRow):
    """The attention of the first row, with the dropout that it has among all rows."""

    def drop(self, weights: Tensor, rate: float, training: bool) -> Tensor:
        """Zero a part of the weights, (B, heads, 1, T)."""
        batch, heads, _, tokens = weights.shape
        return weights * _kept(weights, (batch, heads, tokens, tokens), rate, training)[:, :, :1]


@contextmanager
def _drawing_all_rows(layer: nn.Module, tokens: int) -> Iterator[None]:
    """Have a layer's dropouts draw for all rows, and give the first alone."""

    def widened(dropout: nn.Module, given: tuple[Tensor]) -> Tensor:
        return F.pad(given[0], (0, 0, 0, tokens - 1))

    def first(dropout: nn.Module, given: Any, rows: Tensor) -> Tensor:
        return rows[:, :1]

    with ExitStack() as hooks:
        for module in layer.modules():
            if isinstance(module, nn.Dropout):
                hooks.enter_context(module.register_forward_pre_hook(widened))
                hooks.enter_context(module.register_forward_hook(first))
        yield


def _kept(like: Tensor, shape: tuple[int, ...], rate: float, training: bool) -> Tensor:
    """Return what dropout multiplies a tensor of that shape by."""
    return F.dropout(torch.ones(shape, dtype=like.dtype, device=like.device), rate, training)
