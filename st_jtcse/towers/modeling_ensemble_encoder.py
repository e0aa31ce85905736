"""Ensemble encoder: the weighted sum of any number of encoders' CLS states.

This file is stored beside the weights of every saved ensemble and runs there without st_jtcse, so it may import
torch and transformers only, and nothing relative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutput

MEMBER_TYPES = ("bert", "roberta")

# What the members must share: the ensemble has one embedding size, and tokenises once.
_SHARED_KEYS = ("hidden_size", "vocab_size", "pad_token_id")
# What readers of a top-level config (Sentence-Transformers, exporters, model cards) look for.
_MIRRORED_KEYS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings",
    "pad_token_id", "bos_token_id", "eos_token_id",
)  # fmt: skip
# Facts of one file or session, not of the architecture; a local path in `_name_or_path` would leak into config.json.
_VOLATILE_KEYS = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")
OTHER_TOKENIZERS = "encoders with tokenizers of their own are summed by MultiTokenizerEnsemble."


class EnsembleEncoderConfig(PretrainedConfig):
    r"""Configuration of an :class:`EnsembleEncoderModel`.

    Args:
        members: Configuration of each encoder (BERT or RoBERTa), as a config or its dict. Depth, heads and
            intermediate size may differ.
        weights: Factor w_k of each member; 1.0 by default.
        cls_only: Whether `last_hidden_state` holds the CLS state alone, (B, 1, H). False gives (B, T, H).
        format_version: Version of this layout; a newer one than :attr:`newest_format` is refused.

    Raises:
        ValueError: There is no member, one is of another type, they differ in size, vocabulary or padding, the weights
            do not match them, or the format is newer.
    """

    model_type = "ensemble_encoder"
    newest_format = 1

    def __init__(
        self,
        members: Sequence[PretrainedConfig | dict[str, Any]] | None = None,
        weights: Sequence[float] | None = None,
        cls_only: bool = True,
        format_version: int = 1,
        **kwargs: Any,
    ) -> None:
        if not isinstance(format_version, int):
            raise ValueError(f"format_version must be a whole number, found {format_version!r}.")
        if format_version > self.newest_format:
            raise ValueError(
                f"This ensemble encoder was saved in format {format_version}, but this version reads up to format "
                f"{self.newest_format}; upgrade st-jtcse (pip install -U st-jtcse) to load it."
            )
        # transformers builds a config without arguments to learn its defaults.
        self.members = [_member_config(member) for member in ([{}] if members is None else members)]
        self.weights = check_weights(weights, len(self.members))
        check_shared(self.members)
        self.cls_only = cls_only
        self.format_version = format_version
        kwargs |= {key: getattr(self.members[0], key, None) for key in _MIRRORED_KEYS}
        kwargs["num_hidden_layers"] = max(member.num_hidden_layers for member in self.members)
        kwargs["max_position_embeddings"] = min(member.max_position_embeddings for member in self.members)
        super().__init__(**kwargs)

    def to_dict(self) -> dict[str, Any]:
        """Return the serialisable form, without facts that belong to one machine."""
        values: dict[str, Any] = super().to_dict()
        values.pop("_name_or_path", None)
        values["members"] = [_lasting(member.to_dict()) for member in self.members]
        return values


def _lasting(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in _VOLATILE_KEYS}


def _member_config(member: PretrainedConfig | dict[str, Any]) -> PretrainedConfig:
    settings = _lasting(member.to_dict() if isinstance(member, PretrainedConfig) else member)
    member_type = settings.pop("model_type", "bert")
    if member_type not in MEMBER_TYPES:
        raise ValueError(f"A member must be one of {', '.join(MEMBER_TYPES)}, found {member_type!r}.")
    return AutoConfig.for_model(member_type, **settings)


def check_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return one weight for each of so many members, or refuse."""
    if count == 0:
        raise ValueError("An ensemble needs at least one member, found none.")
    values = [1.0] * count if weights is None else [float(weight) for weight in weights]
    if len(values) != count:
        raise ValueError(f"An ensemble needs one weight a member, found {len(values)} for {count}.")
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
                    f"The members differ in {key}: {first!r} in the first, {other!r} in no. {index}; {way_out}"
                )


class EnsembleEncoderModel(PreTrainedModel):
    r"""Encoders that share a tokenizer and a hidden size; the embedding is the weighted sum of their CLS states.

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
    _no_split_modules = ["BertLayer", "RobertaLayer", "BertEmbeddings", "RobertaEmbeddings"]  # noqa: RUF012
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def __init__(self, config: EnsembleEncoderConfig) -> None:
        super().__init__(config)
        # The configs are a list, which transformers does not search: the attention implementation is handed on here.
        # Typed as Any: the members' inner modules are named by every BERT and RoBERTa checkpoint, not by a class.
        self.members: Any = nn.ModuleList(
            AutoModel.from_config(member, attn_implementation=config._attn_implementation, add_pooling_layer=False)
            for member in config.members
        )
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        cls_only: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple[Tensor, ...]:
        """Encode a batch.

        Args:
            input_ids: Token ids, (B, T) int64.
            attention_mask: 1 for tokens, 0 for padding, (B, T); None: no padding.
            token_type_ids: Segment ids, (B, T) int64.
            cls_only: Overrides the configuration's `cls_only` for this call.
            return_dict: False gives a tuple.

        Returns:
            The weighted sum of the last hidden states, (B, 1, H) for CLS alone or (B, T, H).
        """
        cls_only = self.config.cls_only if cls_only is None else cls_only
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        total: Tensor | None = None
        for member, weight in zip(self.members, self.config.weights):
            hidden = member.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
            mask = create_bidirectional_mask(member.config, hidden, attention_mask)
            # All rows of the last layer too: for CLS alone its rounding would differ from the plain encoder's.
            for layer in member.encoder.layer:
                hidden = layer(hidden, mask)
            part = weight * (hidden[:, :1] if cls_only else hidden)
            total = part if total is None else total + part
        output = BaseModelOutput(last_hidden_state=total)
        return output.to_tuple() if return_dict is False else output


# Every save_pretrained then copies this file beside the weights and names it in the config's auto_map.
EnsembleEncoderConfig.register_for_auto_class()
EnsembleEncoderModel.register_for_auto_class("AutoModel")
