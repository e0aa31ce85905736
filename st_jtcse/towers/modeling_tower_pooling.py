"""What a twin and an ensemble share: their towers' configurations, and how a tower's tokens make
its embedding.

This file is stored beside the weights of every saved twin and ensemble and runs there without
st_jtcse, so it may import torch and transformers only.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding, PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES

# none: the rows stay as they are, for whatever pools them behind the model.
TowerPooling = Literal["cls", "mean", "first_last", "lasttoken", "pooler", "none"]
TOWER_POOLINGS: tuple[TowerPooling, ...] = get_args(TowerPooling)

# What readers of a top-level config (Sentence-Transformers, exporters, model cards) look for.
MIRRORED_KEYS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
    "max_position_embeddings",
    "pad_token_id", "bos_token_id", "eos_token_id",
)  # fmt: skip
# Facts of one file or session, not of the architecture; a local path in `_name_or_path` would leak
# into config.json.
_VOLATILE_KEYS = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")
# Readers of format 1 take the CLS states of BERT and RoBERTa, whatever else the configuration says.
_FIRST_FORMAT = {"pooling": "cls", "normalize": False, "include_prompt": True}


class SumConfig(PretrainedConfig):
    r"""What the configurations of a twin and of an ensemble share.

    Args:
        pooling: How a tower's tokens make its embedding: ``"cls"``, the first token; ``"mean"`` of
            the tokens; ``"first_last"``, the mean of the first and the last layer's;
            ``"lasttoken"``; ``"pooler"``, a twin's tanh layer on the first token; ``"none"`` gives
            all tokens.
        normalize: Whether each tower's embedding is brought to length 1 before they are summed.
        include_prompt: Whether a prompt's tokens count in a mean.
        format_version: Version of this layout; a newer one than :attr:`newest_format` is refused.

    Raises:
        ValueError: There is no such pooling, or the format is newer.
    """

    newest_format = 2

    def __init__(
        self,
        pooling: TowerPooling = "cls",
        normalize: bool = False,
        include_prompt: bool = True,
        format_version: int = 1,
        **kwargs: Any,
    ) -> None:
        if not isinstance(format_version, int):
            raise ValueError(f"format_version must be a whole number, found {format_version!r}.")
        if format_version > self.newest_format:
            raise ValueError(
                f"This {self.model_type.replace('_', ' ')} was saved in format {format_version}, "
                f"but this version reads up to format {self.newest_format}; upgrade st-jtcse (pip "
                "install -U st-jtcse) to load it."
            )
        # As format 1 said it.
        pooling = pooling if kwargs.pop("cls_only", True) else "none"
        if pooling not in TOWER_POOLINGS:
            raise ValueError(
                f"pooling must be one of {', '.join(TOWER_POOLINGS)}, found {pooling!r}."
            )
        self.pooling = pooling
        self.normalize = normalize
        self.include_prompt = include_prompt
        super().__init__(**kwargs)

    def to_dict(self) -> dict[str, Any]:
        """Return the serialisable form, without facts that belong to one machine."""
        values: dict[str, Any] = super().to_dict()
        values.pop("_name_or_path", None)
        values["format_version"] = (
            1 if _FIRST_FORMAT.items() <= values.items() else self.newest_format
        )
        return values


def lasting(settings: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration's settings without facts of one file or session."""
    return {key: value for key, value in settings.items() if key not in _VOLATILE_KEYS}


def tower_config(tower: PretrainedConfig | dict[str, Any], role: str) -> PretrainedConfig:
    """Return a tower's own configuration, or refuse one that gives no rows of tokens or comes with
    code.
    """
    settings = lasting(tower.to_dict() if isinstance(tower, PretrainedConfig) else tower)
    tower_type = settings.pop("model_type", "bert")
    if tower_type not in CONFIG_MAPPING:
        raise ValueError(
            f"{role} must be of a type that transformers knows itself, found {tower_type!r}."
        )
    config = AutoConfig.for_model(tower_type, **settings)
    if config.is_encoder_decoder and tower_type not in MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES:
        raise ValueError(
            f"{role} must be an encoder or a decoder alone, found {tower_type!r}, which is both."
        )
    return config


def tower_class(config: PretrainedConfig) -> Any:
    """Return the class that loads and makes a tower: of a type with a decoder, such as T5, its
    encoder alone.
    """
    if config.model_type in MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES:
        return AutoModelForTextEncoding
    return AutoModel


def unsplit_modules(towers: Iterable[Any]) -> list[str]:
    """Name the towers' modules that one device must hold whole."""
    return sorted({name for tower in towers for name in tower._no_split_modules or ()})


def takes_segments(tower: nn.Module) -> bool:
    """Tell whether a tower takes token_type_ids."""
    return "token_type_ids" in inspect.signature(tower.forward).parameters


def rows_of(tower: Any, inputs: dict[str, Any], pooling: TowerPooling) -> Tensor:
    """Run a whole tower by itself: the rows that are pooled, (B, T, H)."""
    if hasattr(tower.config, "use_cache"):
        # A decoder's keys and values serve the writing of text.
        inputs = {**inputs, "use_cache": False}
    if pooling != "first_last":
        return tower(**inputs).last_hidden_state
    output = tower(**inputs, output_hidden_states=True)
    # The embeddings' output comes before the first layer's.
    return (output.hidden_states[1] + output.last_hidden_state) / 2


def pooled(rows: Tensor, attention_mask: Tensor, pooling: TowerPooling) -> Tensor:
    """Make one state of each sentence's rows, (B, T, H): (B, H)."""
    if pooling in ("mean", "first_last"):
        weights = attention_mask.unsqueeze(-1).to(rows.dtype)
        # In half precision a sum of many rows would lose what the last ones add.
        wide = torch.promote_types(rows.dtype, torch.float32)
        total = (rows * weights).sum(dim=1, dtype=wide) / weights.sum(dim=1, dtype=wide).clamp(
            min=1e-9
        )
        return total.to(rows.dtype)
    if pooling == "lasttoken":
        places = rows.shape[1] - 1 - attention_mask.flip(1).argmax(dim=1)
    else:
        places = attention_mask.argmax(dim=1)
    return rows[torch.arange(rows.shape[0], device=rows.device), places]


def begins_rows(attention_mask: Tensor) -> bool:
    """Tell whether every sentence's first row is a token that counts, as compiled graphs take for
    granted.
    """
    if torch.compiler.is_compiling():
        return True
    return bool(attention_mask[:, 0].all())


def laid_out(
    config: PretrainedConfig, ids: Tensor, attention_mask: Tensor | None, bounds: Tensor | None
) -> dict[str, Tensor]:
    """Return a batch's ids and mask, (B, T) each; flat sentences, whose `bounds` say where each
    begins and ends, become rows.
    """
    if bounds is not None:
        attention_mask = padded(torch.ones_like(ids), bounds, 0)
        ids = padded(ids, bounds, config.pad_token_id or 0)
    if attention_mask is None:
        attention_mask = torch.ones_like(ids)
    return {"input_ids": ids, "attention_mask": attention_mask}


def counted_rows(
    config: PretrainedConfig, attention_mask: Tensor, prompt_length: int | Tensor | None
) -> Tensor:
    """Return which tokens are pooled: a prompt's, behind any padding, only where the configuration
    says so.
    """
    if config.include_prompt or prompt_length is None:
        return attention_mask
    # Sentence-Transformers' trainer makes a tensor of it, with one number or one a sentence.
    length = prompt_length.view(-1)[0] if isinstance(prompt_length, Tensor) else prompt_length
    begins = attention_mask.argmax(dim=1, keepdim=True) + length
    return attention_mask * (
        torch.arange(attention_mask.shape[1], device=attention_mask.device) >= begins
    )


def padded(flat: Tensor, bounds: Tensor, padding: int) -> Tensor:
    """Make rows, (B, T), of all sentences' tokens, (1, sum of lengths); `bounds` is where each
    begins and ends.
    """
    sentences = flat[0].split(bounds.diff().tolist())
    return nn.utils.rnn.pad_sequence(list(sentences), batch_first=True, padding_value=padding)


def flattened(rows: Tensor, attention_mask: Tensor, bounds: Tensor) -> Tensor:
    """Lay the rows of all sentences behind each other, (1, sum of lengths, H), as poolings of flat
    inputs read them.

    Where a sentence has one row only, it stands at each of its tokens.
    """
    if rows.shape[1] > 1 or attention_mask.shape[1] == 1:
        return rows[attention_mask.bool()][None]
    return rows[:, 0].repeat_interleave(bounds.diff(), dim=0)[None]
