"""Twin encoder: two BERT or RoBERTa towers whose CLS states are summed.

This file is stored beside the weights of every saved twin and runs there without st_jtcse, so it may import
torch and transformers only, and nothing relative.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask
from transformers.utils import logging
from transformers.utils.generic import ModelOutput

logger = logging.get_logger(__name__)

CrossResidual = Literal["stream", "local"]
CROSS_RESIDUALS: tuple[CrossResidual, ...] = ("stream", "local")
TOWER_TYPES = ("bert", "roberta")

# What two towers must share: the twin keeps one tower configuration, one tokenizer and one embedding size.
_SHAPE_KEYS = (
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "layer_norm_eps",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
    "pad_token_id",
)
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


class TwinEncoderConfig(PretrainedConfig):
    r"""Configuration of a :class:`TwinEncoderModel`.

    Args:
        tower: Configuration of either tower (BERT or RoBERTa), as a config or its dict.
        cross_attention_every: k of the cross-attention encoder layers (CAELs): every layer j in 1..N with
            j mod k = 0 is one. Must divide N. None: no cross-attention.
        cross_residual: Residual of the cross stream at a CAEL. ``"stream"``: the cross stream's own state, which
            starts from the tower's hidden state; ``"local"``: the tower's hidden state.
        cls_only: Whether `last_hidden_state` holds the CLS state alone, (B, 1, H): the last layer is then
            computed for one token. False gives (B, T, H).
        format_version: Version of this layout; a newer one than :attr:`newest_format` is refused.

    Raises:
        ValueError: The tower is of another type, k does not divide the depth, or the format is newer.

    References:
        JTCSE (Zong et al.), Sec. III-B, Eq. 7 to 10.
    """

    model_type = "twin_encoder"
    sub_configs = {"tower": AutoConfig}  # noqa: RUF012  # transformers' own spelling of this attribute
    newest_format = 1

    def __init__(
        self,
        tower: PretrainedConfig | dict[str, Any] | None = None,
        cross_attention_every: int | None = 2,
        cross_residual: CrossResidual = "stream",
        cls_only: bool = True,
        format_version: int = 1,
        **kwargs: Any,
    ) -> None:
        if format_version > self.newest_format:
            raise ValueError(
                f"This twin encoder was saved in format {format_version}, but this version reads up to format "
                f"{self.newest_format}; upgrade st-jtcse (pip install -U st-jtcse) to load it."
            )
        if isinstance(tower, PretrainedConfig):
            tower = tower.to_dict()
        # transformers builds a config without arguments to learn its defaults.
        settings = {"model_type": "bert", **(tower or {})}
        settings = {key: value for key, value in settings.items() if key not in _VOLATILE_KEYS}
        tower_type = settings.pop("model_type")
        if tower_type not in TOWER_TYPES:
            raise ValueError(f"A tower must be one of {', '.join(TOWER_TYPES)}, found {tower_type!r}.")
        self.tower = AutoConfig.for_model(tower_type, **settings)
        _check_cross_attention(cross_attention_every, cross_residual, self.tower.num_hidden_layers)
        self.cross_attention_every = cross_attention_every
        self.cross_residual = cross_residual
        self.cls_only = cls_only
        self.format_version = format_version
        for key in _MIRRORED_KEYS:
            kwargs[key] = getattr(self.tower, key, None)
        super().__init__(**kwargs)

    def to_dict(self) -> dict[str, Any]:
        """Return the serialisable form, without facts that belong to one machine."""
        values: dict[str, Any] = super().to_dict()
        values.pop("_name_or_path", None)
        values["tower"] = {k: v for k, v in values["tower"].items() if k not in _VOLATILE_KEYS}
        return values


def _check_cross_attention(every: int | None, residual: str, depth: int) -> None:
    if residual not in CROSS_RESIDUALS:
        raise ValueError(f"cross_residual must be one of {', '.join(CROSS_RESIDUALS)}, found {residual!r}.")
    if every is None:
        return
    periods = [k for k in range(1, depth + 1) if depth % k == 0]
    if every not in periods:
        raise ValueError(
            f"cross_attention_every must divide the towers' {depth} layers, found {every}; use one of "
            f"{', '.join(map(str, periods))}, or null for no cross-attention."
        )


@dataclass
class TwinEncoderOutput(ModelOutput):
    """Output of :class:`TwinEncoderModel`.

    Args:
        last_hidden_state: Sum of the towers' last hidden states, (B, 1, H) for CLS alone or (B, T, H).
        tower_cls: Last CLS state of each tower, (B, 2, H); only with ``tower_outputs=True``.
        cross_cls: CLS state of each cross stream at the last CAEL, (B, 2, H); only with ``tower_outputs=True`` and
            cross-attention.
    """

    last_hidden_state: Tensor | None = None
    tower_cls: Tensor | None = None
    cross_cls: Tensor | None = None


class _CLSAttention:
    """The attention of one layer's CLS row, computed once and applied to any values.

    One softmax and one dropout draw serve both streams: SA_I weights V_I and V_II alike (JTCSE Eq. 7, 8).
    """

    def __init__(self, layer: Any, hidden: Tensor, mask: Tensor) -> None:
        attention = layer.attention.self
        self.heads: int = attention.num_attention_heads
        query = self._split(attention.query(hidden[:, :1]))  # (B, heads, 1, d)
        self.key = self._split(attention.key(hidden))  # (B, heads, T, d)
        self.value = self._split(attention.value(hidden))  # (B, heads, T, d)
        scores = query @ self.key.transpose(-1, -2) * query.shape[-1] ** -0.5
        weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        self.weights = nn.functional.dropout(weights, attention.dropout.p, attention.training)

    def _split(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def context(self, value: Tensor) -> Tensor:
        """Weigh `value`, (B, heads, T, d), for the CLS row: (B, 1, H)."""
        return (self.weights @ value).transpose(1, 2).flatten(2)

    def context_of_all_rows(self, layer: Any, hidden: Tensor, mask: Tensor) -> Tensor:
        """Self-attention of every row, (B, T, H), whose CLS row uses this object's weights."""
        attention = layer.attention.self
        others = nn.functional.scaled_dot_product_attention(
            self._split(attention.query(hidden[:, 1:])),
            self.key,
            self.value,
            attn_mask=mask,
            dropout_p=attention.dropout.p if attention.training else 0.0,
        )
        return torch.cat([self.context(self.value), others.transpose(1, 2).flatten(2)], dim=1)


def _complete(layer: Any, context: Tensor, residual: Tensor) -> Tensor:
    """Output projection, residual, LayerNorm and FFN of a layer, around a given attention context."""
    attended = layer.attention.output(context, residual)
    output: Tensor = layer.output(layer.intermediate(attended), attended)
    return output


class TwinEncoderModel(PreTrainedModel):
    r"""Two encoders of one shape; the embedding is h_I + h_II, the sum of their CLS states.

    Inference runs each tower alone. With ``tower_outputs=True`` the towers also run their cross streams: at a
    cross-attention encoder layer (CAEL), tower I's attention SA_I weights its own values and the partner's,

    .. math:: CT_I = SA_I V_I, \qquad CACT_I = SA_I V_{II}

    and likewise for II; the cross stream is completed with the layer's own output projection, residual, LayerNorm
    and FFN, and never changes the normal stream. Only the CLS row of the cross stream reaches a loss and it
    depends on no other row of it, so that row alone is computed.

    Args:
        config: The twin's configuration.

    Example:
        ::

            from st_jtcse.towers import TwinEncoderModel

            twin = TwinEncoderModel.from_towers("path/to/encoder_1", "path/to/encoder_2")

    References:
        JTCSE (Zong et al.), Sec. III-B, Eq. 7 to 10.
    """

    config_class = TwinEncoderConfig
    base_model_prefix = "twin"
    supports_gradient_checkpointing = True
    _no_split_modules = ["BertLayer", "RobertaLayer", "BertEmbeddings", "RobertaEmbeddings"]  # noqa: RUF012
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def __init__(self, config: TwinEncoderConfig) -> None:
        super().__init__(config)
        self.gradient_checkpointing = False
        # Typed as Any: the towers' inner modules are named by every BERT and RoBERTa checkpoint, not by a class.
        self.towers: Any = nn.ModuleList(AutoModel.from_config(config.tower) for _ in range(2))
        self.post_init()

    @classmethod
    def from_towers(
        cls,
        tower_1: PreTrainedModel | str | os.PathLike[str],
        tower_2: PreTrainedModel | str | os.PathLike[str],
        cross_attention_every: int | None = 2,
        cross_residual: CrossResidual = "stream",
        pooler_seed: int | None = 0,
        **load_kwargs: Any,
    ) -> TwinEncoderModel:
        """Join two encoders of one shape into a twin; the encoders are copied.

        Args:
            tower_1: Tower I: a BERT or RoBERTa model, a folder or a Hub id.
            tower_2: Tower II, likewise.
            cross_attention_every: k of the CAELs, None for no cross-attention.
            cross_residual: Residual of the cross stream, see :class:`TwinEncoderConfig`.
            pooler_seed: Seed of the poolers of towers that come without, which is told once; None refuses such towers.
            **load_kwargs: Passed to `from_pretrained` of each folder or Hub id.

        Returns:
            The twin.

        Raises:
            ValueError: The towers differ (the first difference is named), or lack weights.
        """
        towers = [_load_tower(tower, load_kwargs) for tower in (tower_1, tower_2)]
        first, second = ({k: getattr(t.config, k, None) for k in _SHAPE_KEYS} | {"dtype": t.dtype} for t in towers)
        for key, value in first.items():
            if value != second[key]:
                raise ValueError(
                    f"The towers differ in {key}: {value!r} in the first, {second[key]!r} in the second; "
                    "a twin needs two encoders of one shape and vocabulary."
                )
        if not isinstance(tower_1, PreTrainedModel) and not isinstance(tower_2, PreTrainedModel):
            hub = {key: load_kwargs[key] for key in _HUB_KEYS if key in load_kwargs}
            _compare_tokenizers(*(AutoTokenizer.from_pretrained(tower, **hub) for tower in (tower_1, tower_2)))
        config = TwinEncoderConfig(towers[0].config, cross_attention_every, cross_residual)
        twin = cls(config)
        twin.to(dtype=towers[0].dtype)  # type: ignore[call-arg]  # transformers wraps `to` without its types
        generator = None if pooler_seed is None else torch.Generator().manual_seed(pooler_seed)
        for name, own, given in zip(("first", "second"), twin.towers, towers):
            missing, unexpected = own.load_state_dict(given.state_dict(), strict=False)
            if unexpected or any(not key.startswith("pooler.") for key in missing):
                raise ValueError(f"The towers' weights do not fit: {[*missing, *unexpected][0]!r} differs.")
            if missing and generator is None:
                raise ValueError(f"The {name} tower has no pooler weights; ask for random ones (--random-pooler).")
            if missing:
                logger.warning_once("A tower has no pooler weights; the modulus term starts from a random pooler.")
                nn.init.normal_(own.pooler.dense.weight, std=config.tower.initializer_range, generator=generator)
        return twin

    def to_towers(self) -> tuple[PreTrainedModel, PreTrainedModel]:
        """Return the two plain encoders, poolers included; they share their weights with the twin."""
        return self.towers[0], self.towers[1]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        tower_outputs: bool = False,
        cls_only: bool | None = None,
        return_dict: bool | None = None,
    ) -> TwinEncoderOutput | tuple[Tensor, ...]:
        """Encode a batch.

        Args:
            input_ids: Token ids, (B, T) int64.
            attention_mask: 1 for tokens, 0 for padding, (B, T); None: no padding.
            token_type_ids: Segment ids, (B, T) int64.
            tower_outputs: Also return each tower's CLS state and run the cross streams.
            cls_only: Overrides the configuration's `cls_only` for this call.
            return_dict: False gives a tuple of the fields that are not None.

        Returns:
            The summed hidden states, and on request the towers' own.
        """
        cls_only = self.config.cls_only if cls_only is None else cls_only
        hidden = [t.embeddings(input_ids=input_ids, token_type_ids=token_type_ids) for t in self.towers]
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        # The ordinary layers want the mask of the towers' attention implementation, the CLS rows a plain one.
        layer_mask = create_bidirectional_mask(self.towers[0].config, hidden[0], attention_mask)
        row_mask = attention_mask[:, None, None, :].bool()

        every = self.config.cross_attention_every if tower_outputs else None
        cross: list[Tensor] | None = None
        depth = self.config.tower.num_hidden_layers
        for index in range(depth):
            layers = [tower.encoder.layer[index] for tower in self.towers]
            cls_row_suffices = cls_only and index == depth - 1
            if every is not None and (index + 1) % every == 0:
                hidden, cross = self._cross_layer(layers, hidden, cross, row_mask, cls_row_suffices)
            elif cls_row_suffices:
                hidden = [self._cls_layer(*pair, row_mask) for pair in zip(layers, hidden)]
            else:
                hidden = [layer(state, layer_mask) for layer, state in zip(layers, hidden)]

        output = TwinEncoderOutput(
            last_hidden_state=hidden[0] + hidden[1],
            tower_cls=torch.stack([state[:, 0] for state in hidden], dim=1) if tower_outputs else None,
            cross_cls=torch.cat(cross, dim=1) if cross is not None else None,
        )
        return output.to_tuple() if return_dict is False else output

    def _cls_layer(self, layer: Any, hidden: Tensor, mask: Tensor) -> Tensor:
        """A layer's output for the CLS row alone, (B, 1, H)."""

        def run(hidden: Tensor) -> Tensor:
            attention = _CLSAttention(layer, hidden, mask)
            return _complete(layer, attention.context(attention.value), hidden[:, :1])

        output: Tensor = self._maybe_checkpoint(run, hidden)
        return output

    def _cross_layer(
        self,
        layers: list[Any],
        hidden: list[Tensor],
        cross: list[Tensor] | None,
        mask: Tensor,
        cls_only: bool,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """One CAEL of both towers: the normal streams, and the CLS rows of the cross streams, (B, 1, H) each."""
        if cross is None or self.config.cross_residual == "local":
            cross = [state[:, :1] for state in hidden]

        def run(*states: Tensor) -> tuple[Tensor, ...]:
            hidden, residual = states[:2], states[2:]
            rows = [_CLSAttention(layer, state, mask) for layer, state in zip(layers, hidden)]
            normal, crossed = [], []
            for own, partner, layer, state, rest in zip(rows, reversed(rows), layers, hidden, residual):
                if cls_only:
                    context, state = own.context(own.value), state[:, :1]
                else:
                    context = own.context_of_all_rows(layer, state, mask)
                normal.append(_complete(layer, context, state))  # CT = SA V, JTCSE Eq. 7
                crossed.append(_complete(layer, own.context(partner.value), rest))  # CACT, JTCSE Eq. 8 to 10
            return (*normal, *crossed)

        outputs = self._maybe_checkpoint(run, *hidden, *cross)
        return list(outputs[:2]), list(outputs[2:])

    def _maybe_checkpoint(self, run: Any, *states: Tensor) -> Any:
        if self.gradient_checkpointing and self.training:
            return self._gradient_checkpointing_func(run, *states)
        return run(*states)


def _load_tower(tower: PreTrainedModel | str | os.PathLike[str], load_kwargs: dict[str, Any]) -> PreTrainedModel:
    if isinstance(tower, PreTrainedModel):
        if tower.config.model_type not in TOWER_TYPES:
            raise ValueError(f"A tower must be one of {', '.join(TOWER_TYPES)}, found {tower.config.model_type!r}.")
        return tower
    model, report = AutoModel.from_pretrained(tower, output_loading_info=True, **load_kwargs)
    for key in sorted(report["missing_keys"]):
        if not key.startswith("pooler."):
            raise ValueError(f"{tower} lacks the weight {key!r}; a tower is a whole encoder.")
        model.pooler = None  # drawn by from_towers instead, from a generator of its own
    return _load_tower(model, load_kwargs)


def _compare_tokenizers(first: Any, second: Any) -> None:
    words = [tokenizer.get_vocab() for tokenizer in (first, second)]
    if words[0] != words[1]:
        word = min(dict(set(words[0].items()) ^ set(words[1].items())))
        raise ValueError(
            f"The towers' tokenizers differ in the id of {word!r}: {words[0].get(word)} in the first, "
            f"{words[1].get(word)} in the second; a twin needs one tokenizer."
        )
    probe = "Crème Brûlée, isn't it?  A-b c."
    pieces = [tokenizer.tokenize(probe) for tokenizer in (first, second)]
    if pieces[0] != pieces[1] or first.all_special_tokens != second.all_special_tokens:
        raise ValueError(
            "The towers' tokenizers share a vocabulary but split or mark text differently "
            f"({pieces[0]} and {pieces[1]}); a twin needs one tokenizer."
        )


# Every save_pretrained then copies this file beside the weights and names it in the config's auto_map.
TwinEncoderConfig.register_for_auto_class()
TwinEncoderModel.register_for_auto_class("AutoModel")
