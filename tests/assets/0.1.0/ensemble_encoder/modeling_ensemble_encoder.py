"""Ensemble encoder: the weighted sum of any number of encoders' CLS states.

This file is stored beside the weights of every saved ensemble and runs there without st_jtcse, so it may import
torch and transformers only, and nothing relative.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutput

MEMBER_TYPES = ("bert", "roberta")
# Saved models that are sums themselves: an ensemble takes over their encoders.
TWIN_TYPE = "twin_encoder"
ENSEMBLE_TYPE = "ensemble_encoder"

# What the members must share: the ensemble has one embedding size, and tokenises once.
_SHARED_KEYS = ("hidden_size", "vocab_size", "pad_token_id")
# What readers of a top-level config (Sentence-Transformers, exporters, model cards) look for.
_MIRRORED_KEYS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
)
# How a checkpoint is found; a tokenizer takes these, but nothing else that a model does.
_HUB_KEYS = ("revision", "token", "cache_dir", "local_files_only", "trust_remote_code")
# Facts of one file or session, not of the architecture; a local path in `_name_or_path` would leak into config.json.
_VOLATILE_KEYS = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")
_OTHER_TOKENIZERS = "encoders with tokenizers of their own are summed by MultiTokenizerEnsemble."

Member = PreTrainedModel | str | os.PathLike[str]


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

    model_type = ENSEMBLE_TYPE
    newest_format = 1

    def __init__(
        self,
        members: Sequence[PretrainedConfig | dict[str, Any]] | None = None,
        weights: Sequence[float] | None = None,
        cls_only: bool = True,
        format_version: int = 1,
        **kwargs: Any,
    ) -> None:
        if format_version > self.newest_format:
            raise ValueError(
                f"This ensemble encoder was saved in format {format_version}, but this version reads up to format "
                f"{self.newest_format}; upgrade st-jtcse (pip install -U st-jtcse) to load it."
            )
        # transformers builds a config without arguments to learn its defaults.
        self.members = [_member_config(member) for member in ([{}] if members is None else members)]
        self.weights = _check_weights(weights, len(self.members))
        _check_shared(self.members)
        self.cls_only = cls_only
        self.format_version = format_version
        for key in _MIRRORED_KEYS:
            kwargs[key] = getattr(self.members[0], key, None)
        kwargs["num_hidden_layers"] = max(member.num_hidden_layers for member in self.members)
        kwargs["max_position_embeddings"] = min(member.max_position_embeddings for member in self.members)
        super().__init__(**kwargs)

    def to_dict(self) -> dict[str, Any]:
        """Return the serialisable form, without facts that belong to one machine."""
        values: dict[str, Any] = super().to_dict()
        values.pop("_name_or_path", None)
        values["members"] = [
            {key: value for key, value in member.to_dict().items() if key not in _VOLATILE_KEYS}
            for member in self.members
        ]
        return values


def _member_config(member: PretrainedConfig | dict[str, Any]) -> PretrainedConfig:
    settings = member.to_dict() if isinstance(member, PretrainedConfig) else member
    settings = {"model_type": "bert", **{k: v for k, v in settings.items() if k not in _VOLATILE_KEYS}}
    member_type = settings.pop("model_type")
    _check_type(member_type, MEMBER_TYPES)
    return AutoConfig.for_model(member_type, **settings)


def _check_type(found: str, types: Sequence[str]) -> None:
    if found not in types:
        raise ValueError(f"A member must be one of {', '.join(types)}, found {found!r}.")


def _check_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    if count == 0:
        raise ValueError("An ensemble needs at least one member, found none.")
    values = [1.0] * count if weights is None else [float(weight) for weight in weights]
    if len(values) != count:
        raise ValueError(f"An ensemble needs one weight a member, found {len(values)} for {count}.")
    return values


def _check_shared(configs: Sequence[PretrainedConfig]) -> None:
    for index, config in enumerate(configs[1:], start=2):
        for key in _SHARED_KEYS:
            first, other = (getattr(each, key, None) for each in (configs[0], config))
            if first != other:
                way_out = "a sum needs one size." if key == "hidden_size" else _OTHER_TOKENIZERS
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

            from st_jtcse.towers import EnsembleEncoderModel

            ensemble = EnsembleEncoderModel.from_members(["path/to/encoder_1", "path/to/encoder_2"], [0.3, 0.7])

    References:
        Zong and Zhang, EDFSE, AAAI 2023 (six encoders, w_k = 1); JTCSE (Zong et al.), fusion with another unsupervised
        checkpoint (w = 0.3, 0.3, 0.7).
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

    @classmethod
    def from_members(
        cls, members: Sequence[Member], weights: Sequence[float] | None = None, **load_kwargs: Any
    ) -> EnsembleEncoderModel:
        """Join encoders into an ensemble; the encoders are copied.

        Args:
            members: BERT or RoBERTa models, folders or Hub ids. A twin counts as its two towers, an ensemble as its
                members, their weights multiplied by the one given here.
            weights: Factor w_k of each member; 1.0 by default.
            **load_kwargs: Passed to `from_pretrained` of each folder or Hub id.

        Returns:
            The ensemble, in the first member's dtype.

        Raises:
            ValueError: There is no member, the weights do not match, or the members differ in size, vocabulary or
                tokenizer; the first difference is named.
        """
        factors = _check_weights(weights, len(members))
        models = [_load_member(member, load_kwargs) for member in members]
        _check_shared([model.config for model in models])
        _check_tokenizers([member for member in members if not isinstance(member, PreTrainedModel)], load_kwargs)
        parts = [
            (encoder, factor * own) for model, factor in zip(models, factors) for encoder, own in _encoders_of(model)
        ]
        config = EnsembleEncoderConfig([encoder.config for encoder, _ in parts], [weight for _, weight in parts])
        ensemble = cls(config)
        ensemble.to(dtype=models[0].dtype)  # type: ignore[call-arg]  # transformers wraps `to` without its types
        for own, (encoder, _) in zip(ensemble.members, parts):
            state = {key: value for key, value in encoder.state_dict().items() if not key.startswith("pooler.")}
            own.load_state_dict(state)
        return ensemble

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


def _load_member(member: Member, load_kwargs: dict[str, Any]) -> PreTrainedModel:
    if isinstance(member, PreTrainedModel):
        _check_type(member.config.model_type, (*MEMBER_TYPES, TWIN_TYPE, ENSEMBLE_TYPE))
        return member
    model, report = AutoModel.from_pretrained(member, output_loading_info=True, **load_kwargs)
    missing = sorted(key for key in report["missing_keys"] if "pooler." not in key)
    if missing:
        raise ValueError(f"{member} lacks the weight {missing[0]!r}; it is no whole {model.config.model_type} encoder.")
    return _load_member(model, load_kwargs)


def _encoders_of(model: Any) -> list[tuple[PreTrainedModel, float]]:
    if model.config.model_type == TWIN_TYPE:
        return [(tower, 1.0) for tower in model.towers]
    if model.config.model_type == ENSEMBLE_TYPE:
        return list(zip(model.members, model.config.weights))
    return [(model, 1.0)]


def _check_tokenizers(folders: Sequence[str | os.PathLike[str]], load_kwargs: dict[str, Any]) -> None:
    hub = {key: load_kwargs[key] for key in _HUB_KEYS if key in load_kwargs}
    tokenizers = [AutoTokenizer.from_pretrained(folder, **hub) for folder in folders]
    for folder, tokenizer in zip(folders[1:], tokenizers[1:]):
        difference = tokenizer_difference(tokenizers[0], tokenizer)
        if difference is not None:
            raise ValueError(f"The tokenizers of {folders[0]} and {folder} differ in {difference}; {_OTHER_TOKENIZERS}")


def tokenizer_difference(first: Any, second: Any) -> str | None:
    """Say in what two tokenizers differ, None if they give the same ids."""
    words = [tokenizer.get_vocab() for tokenizer in (first, second)]
    if words[0] != words[1]:
        word = min(dict(set(words[0].items()) ^ set(words[1].items())))
        return f"the id of {word!r} ({words[0].get(word)} and {words[1].get(word)})"
    probe = "Crème Brûlée, isn't it?  A-b c."
    ids = [tokenizer(probe)["input_ids"] for tokenizer in (first, second)]
    if ids[0] != ids[1] or first.all_special_tokens != second.all_special_tokens:
        return f"how they split or mark text ({ids[0]} and {ids[1]})"
    return None


# Every save_pretrained then copies this file beside the weights and names it in the config's auto_map.
EnsembleEncoderConfig.register_for_auto_class()
EnsembleEncoderModel.register_for_auto_class("AutoModel")
