"""Twin encoder: two towers of one shape whose pooled states are summed.

This file is stored beside the weights of every saved twin, with those it imports from, and runs
there without st_jtcse, so it may import torch and transformers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput

from .modeling_tower_layers import (
    LAYERS,
    BertLayers,
    EveryRow,
    EveryRowOfBoth,
    FirstRow,
    for_first_row,
    in_forward,
)
from .modeling_tower_pooling import (
    MIRRORED_KEYS,
    SumConfig,
    TowerPooling,
    begins_rows,
    counted_rows,
    flattened,
    laid_out,
    lasting,
    pooled,
    rows_of,
    takes_segments,
    tower_class,
    tower_config,
    unsplit_modules,
)

CrossResidual = Literal["stream", "local", "layers"]
CROSS_RESIDUALS: tuple[CrossResidual, ...] = ("stream", "local", "layers")
CROSSING_TYPES = tuple(LAYERS)
# Poolings that read the first row alone: the last layer is computed for no other, and with all rows
# the cross streams.
_OF_FIRST_ROW = ("cls", "pooler")
_CROSS_OF_FIRST_ROW = (*_OF_FIRST_ROW, "none")


class TwinEncoderConfig(SumConfig):
    r"""Configuration of a :class:`TwinEncoderModel`.

    Args:
        tower: Configuration of either tower, as a config or its dict.
        cross_attention_every: k of the cross-attention encoder layers (CAELs): every layer j in
            1..N with j mod k = 0 is one. Must divide N. None: no cross-attention, which towers of
            any type that transformers knows can do without; those of :data:`CROSSING_TYPES` need
            not.
        cross_residual: Residual of the cross stream at a CAEL. ``"stream"``: the cross stream's own
            state, which starts from the tower's hidden state; ``"local"``: the tower's hidden
            state; ``"layers"``: the cross stream's own state, which also runs through the ordinary
            layers between two CAELs, all rows of it.
        added_poolers: Whether the twin has poolers of its own, for towers whose type has none.
        bare_layers: How many of the towers' last layers have no LayerNorms.
        **kwargs: How the towers are pooled, see
            :class:`~st_jtcse.towers.modeling_tower_pooling.SumConfig`.

    Raises:
        ValueError: The towers cannot cross, k does not divide the depth, or the format is newer.

    References:
        JTCSE (Zong et al.), Sec. III-B, Eq. 7 to 10.
    """

    model_type = "twin_encoder"
    sub_configs = {"tower": AutoConfig}  # noqa: RUF012  # transformers' own spelling of this attribute

    def __init__(
        self,
        tower: PretrainedConfig | dict[str, Any] | None = None,
        cross_attention_every: int | None = 2,
        cross_residual: CrossResidual = "stream",
        added_poolers: bool = False,
        bare_layers: int = 0,
        **kwargs: Any,
    ) -> None:
        # transformers builds a config without arguments to learn its defaults.
        self.tower = tower_config({} if tower is None else tower, "A tower")
        if cross_residual not in CROSS_RESIDUALS:
            raise ValueError(
                f"cross_residual must be one of {', '.join(CROSS_RESIDUALS)}, found "
                f"{cross_residual!r}."
            )
        if cross_attention_every is not None:
            _check_crossing(self.tower, cross_attention_every)
        self.cross_attention_every = cross_attention_every
        self.cross_residual = cross_residual
        self.added_poolers = added_poolers
        self.bare_layers = bare_layers
        super().__init__(
            **kwargs
            | {key: getattr(self.tower, key) for key in MIRRORED_KEYS if hasattr(self.tower, key)}
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the serialisable form, without facts that belong to one machine."""
        values = super().to_dict()
        values["tower"] = lasting(values["tower"])
        return values


def _check_crossing(tower: PretrainedConfig, every: int) -> None:
    if tower.model_type not in CROSSING_TYPES:
        raise ValueError(
            f"Towers of the type {tower.model_type!r} have no cross-attention, which is there for "
            f"{', '.join(CROSSING_TYPES)}; do without it (cross_attention_every: null)."
        )
    depth = tower.num_hidden_layers
    periods = [k for k in range(1, depth + 1) if depth % k == 0]
    if every not in periods:
        raise ValueError(
            f"cross_attention_every must divide the towers' {depth} layers, found {every}; use one "
            f"of {', '.join(map(str, periods))}, or null for no cross-attention."
        )


@dataclass
class TwinEncoderOutput(ModelOutput):
    """Output of :class:`TwinEncoderModel`.

    Args:
        last_hidden_state: Sum of the towers' pooled states, (B, 1, H), or, for the pooling
            ``"none"``, of their last hidden states, (B, T, H).
        tower_embedding: Pooled state of each tower before any normalisation, (B, 2, H), for the
            pooling ``"none"`` the first token's; only with ``tower_outputs=True``.
        cross_embedding: The same of each cross stream at the last CAEL, (B, 2, H); only with
            ``tower_outputs=True`` and cross-attention.
    """

    last_hidden_state: Tensor | None = None
    tower_embedding: Tensor | None = None
    cross_embedding: Tensor | None = None


def _rows_read(pooling: TowerPooling, counted: Tensor, first_counts: bool | None) -> TowerPooling:
    """Name a pooling that reads the same rows: behind padding or a prompt the first token is not
    the first of them.
    """
    if pooling not in _CROSS_OF_FIRST_ROW or first_counts:
        return pooling
    return pooling if begins_rows(counted) else "mean"


class TowerPooler(nn.Module):
    """BERT's pooler, for towers whose type has none."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(size, size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return tanh(W h + b) of the first of some rows, (B, H)."""
        return self.dense(hidden_states[:, 0]).tanh()


class TwinEncoderModel(PreTrainedModel):
    r"""Two encoders of one shape; the embedding is h_I + h_II, the sum of their pooled states.

    Inference runs each tower alone. With ``tower_outputs=True`` the towers also run their cross
    streams: at a cross-attention encoder layer (CAEL), tower I's attention SA_I weights its own
    values and the partner's,

    .. math:: CT_I = SA_I V_I, \qquad CACT_I = SA_I V_{II}

    and likewise for II; the cross stream is completed with the layer's own output projection,
    residual, LayerNorm and FFN, and never changes the normal stream. It is pooled as the towers
    are. Where only its first row is read, that row alone is computed, for it depends on no other
    row of the cross stream, unless that runs through ordinary layers.

    Args:
        config: The twin's configuration.

    Example:
        ::

            from st_jtcse.modules.joining import twin_of

            twin = twin_of("path/to/encoder_1", "path/to/encoder_2")

    References:
        JTCSE (Zong et al.), Sec. III-B, Eq. 7 to 10.
    """

    config_class = TwinEncoderConfig
    base_model_prefix = "twin"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def __init__(self, config: TwinEncoderConfig) -> None:
        super().__init__(config)
        self.gradient_checkpointing = False
        # Typed as Any: the towers' inner modules are named by their checkpoints, not by a class.
        self.towers: Any = nn.ModuleList(
            tower_class(config.tower).from_config(config.tower) for _ in range(2)
        )
        if config.added_poolers:
            self.add_poolers()
        if config.bare_layers:
            self.remove_layer_norms(config.bare_layers)
        self._takes_segments = takes_segments(self.towers[0])
        self._no_split_modules = unsplit_modules(self.towers)
        self.post_init()

    def to_towers(self) -> tuple[PreTrainedModel, PreTrainedModel]:
        """Return the two plain encoders, their poolers included; they share their weights with the
        twin.
        """
        return self.towers[0], self.towers[1]

    def get_input_embeddings(self) -> nn.Module:
        """Return tower I's table of words, which is of the size of tower II's."""
        return self.towers[0].get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Refuse one table for two towers."""
        raise NotImplementedError(
            "A twin has a table of words in each tower: change those of model.towers one by one."
        )

    def add_poolers(self) -> None:
        """Give towers without poolers some of the twin's own."""
        self.config.added_poolers = True
        self.poolers = nn.ModuleList(TowerPooler(self.config.hidden_size) for _ in range(2))

    def remove_layer_norms(self, layers: int) -> None:
        """Do without the LayerNorms of so many last layers of both towers (JTCSE Fig. 8)."""
        self.config.bare_layers = layers
        for tower in self.towers:
            depth = len(tower.encoder.layer)
            for layer in tower.encoder.layer[max(depth - layers, 0) :]:
                layer.attention.output.LayerNorm = nn.Identity()
                layer.output.LayerNorm = nn.Identity()

    def tower_poolers(self) -> tuple[Any, ...]:
        """Return the towers' poolers, or those that were added; none where there are neither."""
        own: Any = [getattr(tower, "pooler", None) for tower in self.towers]
        own = self.poolers if self.config.added_poolers else own
        return tuple(pooler for pooler in own if hasattr(pooler, "dense"))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        tower_outputs: bool = False,
        pooling: TowerPooling | None = None,
        prompt_length: int | Tensor | None = None,
        first_counts: bool | None = None,
        cu_seq_lens_q: Tensor | None = None,
        cu_seq_lens_k: Tensor | None = None,
        max_length_q: int | None = None,
        max_length_k: int | None = None,
        seq_idx: Tensor | None = None,
        return_dict: bool | None = None,
    ) -> TwinEncoderOutput | tuple[Tensor, ...]:
        """Encode a batch.

        Args:
            input_ids: Token ids, (B, T) int64; with `cu_seq_lens_q` those of all sentences, (1, sum
                of lengths).
            attention_mask: 1 for tokens, 0 for padding, (B, T); None: no padding.
            token_type_ids: Segment ids, (B, T) int64.
            tower_outputs: Also return each tower's pooled state and run the cross streams.
            pooling: Overrides the configuration's `pooling` for this call.
            prompt_length: Tokens of a prompt, which no mean counts where the configuration says so.
            first_counts: Whether each sentence's first token counts; None: looked up, and an
                accelerator asked for it.
            cu_seq_lens_q: Where each sentence of flat inputs begins and ends, (B + 1,).
            cu_seq_lens_k: Comes with flat inputs and is not needed.
            max_length_q: Likewise.
            max_length_k: Likewise.
            seq_idx: Likewise.
            return_dict: False gives a tuple of the fields that are not None.

        Returns:
            The summed states, and on request the towers' own. Of flat inputs `last_hidden_state` is
            (1, sum of lengths, H), a pooled state at each token of its sentence.
        """
        pooling = pooling or self.config.pooling
        inputs: dict[str, Any] = laid_out(self.config, input_ids, attention_mask, cu_seq_lens_q)
        counted = counted_rows(self.config, inputs["attention_mask"], prompt_length)
        if self._takes_segments:
            inputs["token_type_ids"] = token_type_ids if cu_seq_lens_q is None else None
        if self.config.tower.model_type in LAYERS:
            rows = _rows_read(pooling, counted, first_counts)
            hidden, cross = self._through_layers(inputs, tower_outputs, rows)
        else:
            hidden, cross = [rows_of(tower, inputs, pooling) for tower in self.towers], None
        # All rows have one state too, for a loss: that of the first.
        states = self._pooled(hidden, counted, pooling)
        crossed = None if cross is None else self._pooled(cross, counted, pooling)
        total = hidden[0] + hidden[1] if pooling == "none" else self._sum(states)
        if cu_seq_lens_q is not None:
            total = flattened(total, inputs["attention_mask"], cu_seq_lens_q)
        output = TwinEncoderOutput(
            last_hidden_state=total,
            tower_embedding=torch.stack(states, dim=1) if tower_outputs else None,
            cross_embedding=torch.stack(crossed, dim=1) if crossed else None,
        )
        if return_dict is False:
            return output.to_tuple()
        return output

    def _pooled(self, streams: list[Tensor], mask: Tensor, pooling: TowerPooling) -> list[Tensor]:
        """Make one state, (B, H), of each stream's rows; of those of the first row alone there is
        one.
        """
        if pooling == "pooler":
            first = [pooled(rows, mask[:, : rows.shape[1]], "cls")[:, None] for rows in streams]
            return [pooler(rows) for pooler, rows in zip(self.tower_poolers(), first, strict=True)]
        if streams[0].shape[1] == 1:
            return [rows[:, 0] for rows in streams]
        return [pooled(rows, mask, pooling) for rows in streams]

    def _sum(self, states: list[Tensor]) -> Tensor:
        if self.config.normalize:
            states = [nn.functional.normalize(state, dim=-1) for state in states]
        return (states[0] + states[1])[:, None]

    def _through_layers(
        self, inputs: dict[str, Any], tower_outputs: bool, pooling: TowerPooling
    ) -> tuple[list[Tensor], list[Tensor] | None]:
        """Run both towers side by side: the rows to be pooled of the normal streams and of the
        cross streams.
        """
        kind = LAYERS[self.config.tower.model_type]
        ways = [kind(tower, **inputs) for tower in self.towers]
        every = self.config.cross_attention_every if tower_outputs else None
        hidden = first = first_cross = [way.start for way in ways]
        cross: list[Tensor] | None = None
        depth = self.config.tower.num_hidden_layers
        for index in range(depth):
            layers = [way.layers[index] for way in ways]
            is_last = index == depth - 1
            if every is not None and (index + 1) % every == 0:
                hidden, cross = self._cross_layer(
                    ways, layers, hidden, cross, self._rows(pooling, is_last)
                )
            elif is_last and pooling in _OF_FIRST_ROW:
                hidden = [
                    self._run([layer], for_first_row(way, layer), state)
                    for way, layer, state in zip(ways, layers, hidden)
                ]
            else:
                hidden = [way.run(layer, state) for way, layer, state in zip(ways, layers, hidden)]
                if cross is not None and self.config.cross_residual == "layers":
                    cross = [
                        way.run(layer, state) for way, layer, state in zip(ways, layers, cross)
                    ]
            if index == 0:
                first, first_cross = hidden, cross or hidden

        ended = self._ended(ways, pooling, first, hidden)
        if cross is None:
            return ended, None
        return ended, self._ended(ways, pooling, first_cross, cross)

    def _ended(
        self, ways: list[Any], pooling: TowerPooling, first: list[Tensor], last: list[Tensor]
    ) -> list[Tensor]:
        ends = [way.end(state) for way, state in zip(ways, last)]
        if pooling != "first_last":
            return ends
        return [(a + b) / 2 for a, b in zip(first, ends)]

    def _rows(self, pooling: TowerPooling, is_last: bool) -> type[FirstRow | EveryRowOfBoth]:
        """The rows of a CAEL that are read later: of the normal streams, and of the cross
        streams.
        """
        if is_last and pooling in _OF_FIRST_ROW:
            return FirstRow
        goes_on_whole = self.config.cross_residual == "layers" and not is_last
        if pooling in _CROSS_OF_FIRST_ROW and not goes_on_whole:
            return EveryRow
        return EveryRowOfBoth

    def _cross_layer(
        self,
        ways: list[BertLayers],
        layers: list[Any],
        hidden: list[Tensor],
        cross: list[Tensor] | None,
        attend: type[FirstRow | EveryRowOfBoth],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """One CAEL of both towers: the normal streams, and of the cross streams what is read of
        them.
        """
        if cross is None or self.config.cross_residual == "local":
            cross = hidden
        if attend is not EveryRowOfBoth:
            cross = [state[:, :1] for state in cross]

        def run(*states: Tensor) -> tuple[Tensor, ...]:
            rows = [attend(*each) for each in zip(ways, layers, states)]
            normal, crossed = [], []
            for own, partner, state, residual in zip(rows, reversed(rows), states, states[2:]):
                context, crossing = own.contexts(partner.value)
                # JTCSE Eq. 7 to 10: CT = SA V, and CACT, of the partner's V.
                normal.append(own.complete(context, state[:, : context.shape[1]]))
                crossed.append(own.complete(crossing, residual))
            return (*normal, *crossed)

        outputs = self._run(layers, run, *hidden, *cross)
        return list(outputs[:2]), list(outputs[2:])

    def _run(self, layers: list[Any], run: Any, *states: Tensor) -> Any:
        """Run what stands for the forward of some layers."""
        if self.gradient_checkpointing and self.training:
            return in_forward(
                layers, lambda *given: self._gradient_checkpointing_func(run, *given)
            )(*states)
        return in_forward(layers, run)(*states)


# Every save_pretrained then copies this file beside the weights and names it in the config's
# auto_map.
TwinEncoderConfig.register_for_auto_class()
TwinEncoderModel.register_for_auto_class("AutoModel")
