"""Where each type of tower keeps what cross-attention needs: queries, keys, values, mask,
positions, residual.

This file is stored beside the weights of every saved twin and runs there without st_jtcse, so it
may import torch and transformers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import (
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
)

FIRST = slice(0, 1)
OTHERS = slice(1, None)
ALL = slice(None)


class BertLayers:
    """A BERT tower's way through its layers, for one batch; RoBERTa's, CamemBERT's and ELECTRA's
    are the same.

    Args:
        tower: The plain encoder.
        input_ids: Token ids, (B, T).
        attention_mask: 1 for tokens, 0 for padding, (B, T).
        segments: ``token_type_ids``, (B, T), for the types that have them.
    """

    # What projects to queries, keys and values.
    projections = ("query", "key", "value")

    def __init__(
        self, tower: Any, input_ids: Tensor, attention_mask: Tensor, **segments: Tensor | None
    ) -> None:
        self.tower = tower
        embedded = tower.embeddings(input_ids=input_ids, **segments)
        # ELECTRA's embeddings may be narrower.
        project = getattr(tower, "embeddings_project", None)
        self.start: Tensor = embedded if project is None else project(embedded)
        # The ordinary layers want the mask of the tower's attention implementation, the rows
        # computed here a plain one.
        self.layer_mask = create_bidirectional_mask(tower.config, self.start, attention_mask)
        self.padding = attention_mask[:, None, None, :].bool()
        self.heads: int = tower.config.num_attention_heads

    @property
    def layers(self) -> Any:
        """The layers in order."""
        return self.tower.encoder.layer

    def run(self, layer: Any, hidden: Tensor) -> Tensor:
        """An ordinary layer's output, (B, T, H)."""
        return layer(hidden, self.layer_mask)

    def attention(self, layer: Any) -> Any:
        """The module of a layer that projects."""
        return layer.attention.self

    def inputs(self, layer: Any, hidden: Tensor) -> Tensor:
        """What queries, keys and values are made of, (B, T, any)."""
        return hidden

    def query(self, layer: Any, inputs: Tensor, rows: slice) -> Tensor:
        """Queries of some rows, (B, heads, rows, d)."""
        return self.split(getattr(self.attention(layer), self.projections[0])(inputs[:, rows]))

    def key(self, layer: Any, inputs: Tensor) -> Tensor:
        """Keys, (B, heads, T, d)."""
        return self.split(getattr(self.attention(layer), self.projections[1])(inputs))

    def value(self, layer: Any, inputs: Tensor) -> Tensor:
        """Values, (B, heads, T, d)."""
        return self.split(getattr(self.attention(layer), self.projections[2])(inputs))

    def split(self, states: Tensor) -> Tensor:
        """Divide (B, rows, H) among the heads."""
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def bias(self, layer: Any, rows: slice) -> Tensor | None:
        """What is added to the scores of some rows, (B, heads, rows, T)."""
        return None

    def visible(self, layer: Any, rows: slice) -> Tensor:
        """Which tokens some rows attend to, (B, 1, 1 or rows, T)."""
        return self.padding

    def dropout(self, layer: Any) -> float:
        """Rate of a layer's attention dropout in training."""
        return self.attention(layer).dropout.p

    def complete(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Output projection, residual, normalisation and FFN of a layer, around a given attention
        context.
        """
        attended = layer.attention.output(context, residual)
        return layer.output(layer.intermediate(attended), attended)

    def end(self, hidden: Tensor) -> Tensor:
        """What follows the last layer."""
        return hidden


class MPNetLayers(BertLayers):
    """MPNet: a bias that depends on the distance is added to the scores."""

    projections = ("q", "k", "v")

    def __init__(self, tower: Any, input_ids: Tensor, attention_mask: Tensor) -> None:
        super().__init__(tower, input_ids, attention_mask)
        self.distances: Tensor = tower.encoder.compute_position_bias(self.start)

    def run(self, layer: Any, hidden: Tensor) -> Tensor:
        """An ordinary layer's output, (B, T, H)."""
        return layer(hidden, self.layer_mask, self.distances)[0]

    def attention(self, layer: Any) -> Any:
        """The module of a layer that projects."""
        return layer.attention.attn

    def bias(self, layer: Any, rows: slice) -> Tensor:
        """What is added to the scores of some rows, (B, heads, rows, T)."""
        return self.distances[:, :, rows]

    def complete(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Output projection, residual, normalisation and FFN of a layer, around a given attention
        context.
        """
        attention = layer.attention
        attended = attention.LayerNorm(attention.dropout(attention.attn.o(context)) + residual)
        return layer.output(layer.intermediate(attended), attended)


class DistilBertLayers(BertLayers):
    """DistilBERT: BERT's order under other names, without segments."""

    projections = ("q_lin", "k_lin", "v_lin")

    @property
    def layers(self) -> Any:
        """The layers in order."""
        return self.tower.transformer.layer

    def attention(self, layer: Any) -> Any:
        """The module of a layer that projects."""
        return layer.attention

    def complete(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Output projection, residual, normalisation and FFN of a layer, around a given attention
        context.
        """
        attended = layer.sa_layer_norm(layer.attention.out_lin(context) + residual)
        return layer.output_layer_norm(layer.ffn(attended) + attended)


class ModernBertLayers(BertLayers):
    """ModernBERT: normalisation first, one projection for all three, rotated positions, windows in
    some layers.
    """

    def __init__(self, tower: Any, input_ids: Tensor, attention_mask: Tensor) -> None:
        super().__init__(tower, input_ids, attention_mask)
        window_mask = create_bidirectional_sliding_window_mask(
            tower.config, self.start, attention_mask
        )
        self.layer_masks = {"full_attention": self.layer_mask, "sliding_attention": window_mask}
        places = torch.arange(self.start.shape[1], device=self.start.device)
        near = (places[:, None] - places).abs() <= tower.config.sliding_window
        # A token of the padding may see no word; it sees itself, so that no row is made of nothing.
        window = (self.padding & near) | (places[:, None] == places)
        self.windows = {"full_attention": self.padding, "sliding_attention": window}
        kinds = set(tower.config.layer_types)
        self.rotations = {kind: tower.rotary_emb(self.start, places[None], kind) for kind in kinds}

    @property
    def layers(self) -> Any:
        """The layers in order."""
        return self.tower.layers

    def run(self, layer: Any, hidden: Tensor) -> Tensor:
        """An ordinary layer's output, (B, T, H)."""
        kind = layer.attention_type
        return layer(hidden, self.layer_masks[kind], self.rotations[kind])

    def attention(self, layer: Any) -> Any:
        """The module of a layer that projects."""
        return layer.attn

    def inputs(self, layer: Any, hidden: Tensor) -> Tensor:
        """Queries, keys and values side by side, (B, T, 3H)."""
        return layer.attn.Wqkv(layer.attn_norm(hidden))

    def query(self, layer: Any, inputs: Tensor, rows: slice) -> Tensor:
        """Queries of some rows, (B, heads, rows, d)."""
        return self.rotate(layer, self.split(inputs[:, rows].chunk(3, dim=-1)[0]), rows)

    def key(self, layer: Any, inputs: Tensor) -> Tensor:
        """Keys, (B, heads, T, d)."""
        return self.rotate(layer, self.split(inputs.chunk(3, dim=-1)[1]), ALL)

    def value(self, layer: Any, inputs: Tensor) -> Tensor:
        """Values, (B, heads, T, d)."""
        return self.split(inputs.chunk(3, dim=-1)[2])

    def rotate(self, layer: Any, states: Tensor, rows: slice) -> Tensor:
        """Turn queries or keys by their positions; in float32, as the encoder does."""
        cos, sin = (part[:, None, rows] for part in self.rotations[layer.attention_type])
        first, second = states.float().chunk(2, dim=-1)
        return (states.float() * cos + torch.cat([-second, first], dim=-1) * sin).to(states.dtype)

    def visible(self, layer: Any, rows: slice) -> Tensor:
        """Which tokens some rows attend to, (B, 1, 1 or rows, T)."""
        return self.windows[layer.attention_type][:, :, rows]

    def dropout(self, layer: Any) -> float:
        """Rate of a layer's attention dropout in training."""
        return layer.attn.attention_dropout

    def complete(self, layer: Any, context: Tensor, residual: Tensor) -> Tensor:
        """Output projection, residual, normalisation and FFN of a layer, around a given attention
        context.
        """
        attended = residual + layer.attn.out_drop(layer.attn.Wo(context))
        return attended + layer.mlp(layer.mlp_norm(attended))

    def end(self, hidden: Tensor) -> Tensor:
        """What follows the last layer."""
        return self.tower.final_norm(hidden)


# The types whose towers can cross; those of any other type run by themselves.
LAYERS: dict[str, type[BertLayers]] = {
    "bert": BertLayers,
    "roberta": BertLayers,
    "xlm-roberta": BertLayers,
    "camembert": BertLayers,
    "electra": BertLayers,
    "mpnet": MPNetLayers,
    "distilbert": DistilBertLayers,
    "modernbert": ModernBertLayers,
}


def in_forward(layers: Iterable[Any], run: Callable[..., Any]) -> Callable[..., Any]:
    """Make what reads into layers a forward of theirs: only there has `fully_shard` (FSDP2)
    gathered their weights.
    """
    for layer in layers:
        run = _as_forward(layer, run) if hasattr(layer, "unshard") else run
    return run


def _as_forward(layer: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    def call(*states: Tensor) -> Any:
        with with_forward(layer, run):
            # The plain call: older transformers checkpoint a layer's forward in a call of its own.
            return nn.Module.__call__(layer, *states)

    return call


@contextmanager
def with_forward(module: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """Have one module, and no other of its class, compute something else for a while.

    What wraps a module (hooks, DDP, FSDP2) acts around its forward, and a hook cannot stand in for
    it: so the instance gets another, by an attribute that ``nn.Module.__call__`` finds first.
    """
    module.forward = forward
    try:
        yield
    finally:
        del module.forward


class LayerAttention:
    """The attention of one layer on one tower's hidden states.

    One softmax and one dropout draw serve both streams: SA_I weights V_I and V_II alike (JTCSE Eq.
    7 to 10).
    """

    def __init__(self, tower: BertLayers, layer: Any, hidden: Tensor) -> None:
        self.tower, self.layer = tower, layer
        self.inputs = tower.inputs(layer, hidden)

    def of_rows(self, rows: slice, key: Tensor, value: Tensor) -> Tensor:
        """Attention of some rows, (B, rows, H)."""
        tower, layer = self.tower, self.layer
        mask, bias = tower.visible(layer, rows), tower.bias(layer, rows)
        if bias is not None:
            mask = bias.masked_fill(~mask, float("-inf"))
        dropout = tower.dropout(layer) if tower.attention(layer).training else 0.0
        query = tower.query(layer, self.inputs, rows)
        context = nn.functional.scaled_dot_product_attention(query, key, value, mask, dropout)
        return context.transpose(1, 2).flatten(2)

    def complete(self, context: Tensor, residual: Tensor) -> Tensor:
        """The layer's output around a given attention context."""
        return self.tower.complete(self.layer, context, residual)


class FirstRow(LayerAttention):
    """The attention of the first row alone, which is computed once and applied to any values."""

    def __init__(self, tower: BertLayers, layer: Any, hidden: Tensor) -> None:
        super().__init__(tower, layer, hidden)
        query = tower.query(layer, self.inputs, FIRST)
        self.key = tower.key(layer, self.inputs)
        self.value = tower.value(layer, self.inputs)
        scores = query @ self.key.transpose(-1, -2) * query.shape[-1] ** -0.5
        bias = tower.bias(layer, FIRST)
        scores = scores if bias is None else scores + bias
        weights = scores.masked_fill(~tower.visible(layer, FIRST), float("-inf")).softmax(dim=-1)
        self.weights = self.drop(weights, tower.dropout(layer), tower.attention(layer).training)

    def drop(self, weights: Tensor, rate: float, training: bool) -> Tensor:
        """Zero a part of the weights, (B, heads, 1, T), in training."""
        return nn.functional.dropout(weights, rate, training)

    def context(self, value: Tensor) -> Tensor:
        """Weigh `value`, (B, heads, T, d), for the first row: (B, 1, H)."""
        return (self.weights @ value).transpose(1, 2).flatten(2)

    def contexts(self, partner: Tensor) -> tuple[Tensor, Tensor]:
        """CT = SA V and CACT = SA V of the partner, (B, 1, H) each."""
        return self.context(self.value), self.context(partner)


def for_first_row(
    way: BertLayers, layer: Any, attend: type[FirstRow] = FirstRow
) -> Callable[[Tensor], Tensor]:
    """Make what computes a layer's output for the first row alone, (B, 1, H)."""

    def run(hidden: Tensor) -> Tensor:
        attention = attend(way, layer, hidden)
        return way.complete(layer, attention.context(attention.value), hidden[:, :1])

    return run


class EveryRow(FirstRow):
    """The attention of every row on its own values; the partner's are weighed for the first row
    alone.
    """

    def contexts(self, partner: Tensor) -> tuple[Tensor, Tensor]:
        """CT of every row, (B, T, H), whose first row has this object's weights, and CACT, (B, 1,
        H).
        """
        others = self.of_rows(OTHERS, self.key, self.value)
        return torch.cat([self.context(self.value), others], dim=1), self.context(partner)


class EveryRowOfBoth(LayerAttention):
    """The attention of every row on its own and on the partner's values."""

    def __init__(self, tower: BertLayers, layer: Any, hidden: Tensor) -> None:
        super().__init__(tower, layer, hidden)
        self.key = tower.key(layer, self.inputs)
        self.value = tower.value(layer, self.inputs)

    def contexts(self, partner: Tensor) -> tuple[Tensor, Tensor]:
        """CT and CACT of every row, (B, T, H) each."""
        # Side by side as one value: there is one softmax then, and one draw.
        context = self.of_rows(ALL, self.key, torch.cat([self.value, partner], dim=-1))
        own, crossed = context.unflatten(-1, (self.tower.heads, 2, -1)).unbind(-2)
        return own.flatten(2), crossed.flatten(2)
