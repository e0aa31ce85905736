"""Ensemble encoder: the weighted sum of any number of encoders' pooled states.

This file is stored beside the weights of every saved ensemble, with the one it imports from, and
runs there without st_jtcse, so it may import torch and transformers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from .modeling_tower_pooling import (
    MIRRORED_KEYS,
    SumConfig,
    TowerPooling,
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

# What the members must share: the ensemble has one embedding size, and tokenises once.
_SHARED_KEYS = ("hidden_size", "vocab_size", "pad_token_id")
OTHER_TOKENIZERS = "encoders with tokenizers of their own are summed by MultiTokenizerEnsemble."


class EnsembleEncoderConfig(SumConfig):
    r"""Configuration of an :class:`EnsembleEncoderModel`.

    Args:
        members: Configuration of each encoder, as a config or its dict, of any type that
            transformers knows. Depth, heads and intermediate size may differ.
        weights: Factor w_k of each member; 1.0 by default.
        **kwargs: How the members are pooled, see
            :class:`~st_jtcse.towers.modeling_tower_pooling.SumConfig`.

    Raises:
        ValueError: There is no member, one is of another type, they differ in size, vocabulary or
            padding, the weights do not match them, they shall be pooled by poolers, or the format
            is newer.
    """

    model_type = "ensemble_encoder"

    def __init__(
        self,
        members: Sequence[PretrainedConfig | dict[str, Any]] | None = None,
        weights: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> None:
        # transformers builds a config without arguments to learn its defaults.
        given = [{}] if members is None else members
        self.members = [tower_config(member, "A member") for member in given]
        self.weights = check_weights(weights, len(self.members))
        check_shared(self.members)
        first = self.members[0]
        kwargs |= {key: getattr(first, key) for key in MIRRORED_KEYS if hasattr(first, key)}
        kwargs["num_hidden_layers"] = max(member.num_hidden_layers for member in self.members)
        positions = [getattr(member, "max_position_embeddings", None) for member in self.members]
        if known := [length for length in positions if length is not None]:
            kwargs["max_position_embeddings"] = min(known)
        super().__init__(**kwargs)
        if self.pooling == "pooler":
            raise ValueError(
                "An ensemble's members are without poolers, so that it cannot be pooled by "
                "'pooler'."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the serialisable form, without facts that belong to one machine."""
        values = super().to_dict()
        values["members"] = [lasting(member.to_dict()) for member in self.members]
        return values


def check_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return one weight for each of so many members, or refuse."""
    if count == 0:
        raise ValueError("An ensemble needs at least one member, found none.")
    values = [1.0] * count if weights is None else list(map(float, weights))
    if len(values) != count:
        raise ValueError(
            f"An ensemble needs one weight per member, found {len(values)} for {count}."
        )
    if not 0 < sum(map(abs, values)) < float("inf"):
        raise ValueError(f"An ensemble needs finite weights, not all of them zero, found {values}.")
    return values


def check_shared(configs: Sequence[PretrainedConfig]) -> None:
    """Refuse encoders whose CLS states cannot be summed over one tokenizer."""
    for index, config in enumerate(configs[1:], start=2):
        for key in _SHARED_KEYS:
            first, other = (getattr(each, key, None) for each in (configs[0], config))
            if first != other:
                way_out = "a sum needs one size." if key == "hidden_size" else OTHER_TOKENIZERS
                raise ValueError(
                    f"The members differ in {key}: {first!r} in the first, {other!r} in no. "
                    f"{index}; {way_out}"
                )


class EnsembleEncoderModel(PreTrainedModel):
    r"""Encoders that share a tokenizer and a hidden size; the embedding is the weighted sum of
    their pooled states.

    .. math:: h = \sum_k w_k h_k

    It is for inference and for teaching: the members' poolers are left out.

    Args:
        config: The ensemble's configuration.

    Example:
        ::

            from st_jtcse.modules.joining import ensemble_encoder_of

            ensemble = ensemble_encoder_of(["path/to/encoder_1", "path/to/encoder_2"], [0.3, 0.7])
    """

    config_class = EnsembleEncoderConfig
    base_model_prefix = "ensemble"
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def __init__(self, config: EnsembleEncoderConfig) -> None:
        # The configs are a list, which transformers does not search: what was asked for is handed
        # on; where nothing was, each member has its own default.
        asked = config._attn_implementation
        super().__init__(config)
        # Typed as Any: nn.ModuleList forgets what it holds.
        self.members: Any = nn.ModuleList(
            tower_class(member).from_config(member, attn_implementation=asked)
            for member in config.members
        )
        encoders: list[Any] = list(self.members)
        for member in encoders:
            if hasattr(member, "pooler"):
                member.pooler = None
        self._take_segments = [takes_segments(member) for member in self.members]
        self._no_split_modules = unsplit_modules(self.members)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        pooling: TowerPooling | None = None,
        prompt_length: int | Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        cu_seq_lens_k: Tensor | None = None,
        max_length_q: int | None = None,
        max_length_k: int | None = None,
        seq_idx: Tensor | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple[Tensor, ...]:
        """Encode a batch.

        Args:
            input_ids: Token ids, (B, T) int64; with `cu_seq_lens_q` those of all sentences, (1, sum
                of lengths).
            attention_mask: 1 for tokens, 0 for padding, (B, T); None: no padding.
            token_type_ids: Segment ids, (B, T) int64.
            pooling: Overrides the configuration's `pooling` for this call.
            prompt_length: Tokens of a prompt, which no mean counts where the configuration says so.
            cu_seq_lens_q: Where each sentence of flat inputs begins and ends, (B + 1,).
            cu_seq_lens_k: Comes with flat inputs, as do the next three, and is not needed.
            max_length_q: Not needed.
            max_length_k: Not needed.
            seq_idx: Not needed.
            return_dict: False gives a tuple.

        Returns:
            The weighted sum of the pooled states, (B, 1, H), or for the pooling ``"none"`` of the
            last hidden states,
            (B, T, H). Of flat inputs it is (1, sum of lengths, H), a pooled state at each token of
            its sentence.
        """
        pooling = pooling or self.config.pooling
        inputs = laid_out(self.config, input_ids, attention_mask, cu_seq_lens_q)
        counted = counted_rows(self.config, inputs["attention_mask"], prompt_length)
        segments = token_type_ids if cu_seq_lens_q is None else None
        parts = []
        for member, takes, weight in zip(self.members, self._take_segments, self.config.weights):
            own = {**inputs, "token_type_ids": segments} if takes else inputs
            # All rows of the last layer too: for CLS alone its rounding would differ from the plain
            # encoder's.
            state = rows_of(member, own, pooling)
            if pooling != "none":
                state = pooled(state, counted, pooling)[:, None]
                if self.config.normalize:
                    state = nn.functional.normalize(state, dim=-1)
            parts.append(weight * state)
        total = sum(parts[1:], start=parts[0])
        if cu_seq_lens_q is not None:
            total = flattened(total, inputs["attention_mask"], cu_seq_lens_q)
        output = BaseModelOutput(last_hidden_state=total)
        if return_dict is False:
            return output.to_tuple()
        return output


# Every save_pretrained then copies this file beside the weights and names it in the config's
# auto_map.
EnsembleEncoderConfig.register_for_auto_class()
EnsembleEncoderModel.register_for_auto_class("AutoModel")
