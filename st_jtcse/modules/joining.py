"""Encoders become one: a twin of two, an ensemble of any number; weights are copied bit by bit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import torch
from safetensors.torch import save_model
from sentence_transformers.base.modules import Transformer
from torch import nn
from transformers import AutoProcessor, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from st_jtcse.errors import PoolerNeeded, UserError
from st_jtcse.modules.loading import load_config, reading
from st_jtcse.modules.whole_models import check_tokenizer, lower_length
from st_jtcse.towers import (
    EnsembleEncoderConfig,
    EnsembleEncoderModel,
    TwinEncoderConfig,
    TwinEncoderModel,
)
from st_jtcse.towers.modeling_ensemble_encoder import OTHER_TOKENIZERS, check_shared, check_weights
from st_jtcse.towers.modeling_tower_pooling import (
    SumConfig,
    TowerPooling,
    tower_class,
    tower_config,
)
from st_jtcse.towers.modeling_twin_encoder import CrossResidual

logger = logging.get_logger(__name__)

Encoder = PreTrainedModel | str | os.PathLike[str]
Module = TypeVar("Module", bound=Transformer)

JOINED_TYPES = (TwinEncoderConfig.model_type, EnsembleEncoderConfig.model_type)
# What two towers must share: the twin keeps one tower configuration, one tokenizer and one
# embedding size.
_SHAPE_KEYS = (
    "model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "hidden_act",
    "layer_norm_eps", "vocab_size", "max_position_embeddings", "type_vocab_size", "pad_token_id",
    # Of other types than BERT.
    "embedding_size", "activation", "hidden_activation", "norm_eps", "rms_norm_eps",
    "relative_attention_num_buckets",
    "layer_types", "local_attention", "sliding_window", "rope_parameters", "num_key_value_heads",
    "head_dim",
)  # fmt: skip
# How a checkpoint is found; a tokenizer takes these, but nothing else that a model does.
_HUB_KEYS = ("revision", "token", "cache_dir", "local_files_only", "trust_remote_code")


class JoinedEncoder(Transformer):
    """A Transformer around encoders that were joined, the base of the twin and of the ensemble."""

    joined_type: ClassVar[str]
    wanted: ClassVar[str]

    def __init__(self, model_name_or_path: str, **kwargs: Any) -> None:
        super().__init__(model_name_or_path, **kwargs)
        found = self.model.config.model_type
        if found != self.joined_type:
            raise UserError(f"{model_name_or_path} holds a {found} model, not {self.wanted}.")


def twin_of(
    tower_1: Encoder,
    tower_2: Encoder,
    cross_attention_every: int | None = 2,
    cross_residual: CrossResidual = "stream",
    pooler_seed: int | None = 0,
    pooling: TowerPooling = "cls",
    normalize: bool = False,
    include_prompt: bool = True,
    **load_kwargs: Any,
) -> TwinEncoderModel:
    """Join two encoders as :meth:`~st_jtcse.modules.TwinCrossAttentionEncoder.from_towers` does,
    without tokenizer.
    """
    towers = [_load(tower, "A tower", load_kwargs) for tower in (tower_1, tower_2)]
    first, second = map(_shape, towers)
    for key, value in first.items():
        if value != second[key]:
            raise UserError(
                f"The towers differ in {key}: {value!r} in the first, {second[key]!r} in the "
                "second; a twin needs two encoders of one shape and vocabulary."
            )
    _compare_tokenizers([tower_1, tower_2], load_kwargs, "a twin needs one tokenizer.")
    with told_by_the_user():
        config = TwinEncoderConfig(
            towers[0].config,
            cross_attention_every,
            cross_residual,
            pooling=pooling,
            normalize=normalize,
            include_prompt=include_prompt,
        )
    twin = TwinEncoderModel(config)
    generator = None if pooler_seed is None else torch.Generator().manual_seed(pooler_seed)
    _fill(twin, towers, generator)
    twin.to(dtype=towers[0].dtype)  # type: ignore[call-arg]  # transformers wraps `to` without its types
    return twin


def _fill(
    twin: TwinEncoderModel, towers: list[PreTrainedModel], generator: torch.Generator | None
) -> None:
    """Copy the weights of both encoders, and draw poolers where they have none."""
    tower_config = twin.config.tower
    for name, own, given in zip(("first", "second"), twin.towers, towers):
        lacks_pooler = _fill_tower(own, given, name)
        if lacks_pooler and hasattr(own.pooler, "dense"):
            _draw_pooler(own.pooler, f"The {name} tower has", tower_config, generator)
    if twin.tower_poolers() or (generator is None and twin.config.pooling != "pooler"):
        return
    twin.add_poolers()
    whose = f"Towers of the type {tower_config.model_type!r} have"
    for pooler in twin.tower_poolers():
        _draw_pooler(pooler, whose, tower_config, generator)


def _fill_tower(own: Any, given: PreTrainedModel, name: str) -> bool:
    """Copy an encoder's weights into a tower, and tell whether a pooler's were missing."""
    try:
        missing, unexpected = own.load_state_dict(given.state_dict(), strict=False)
    except RuntimeError as error:
        raise UserError(
            f"The {name} tower's weights do not fit: {' '.join(str(error).split())[:300]}"
        ) from error
    if unexpected or any(not key.startswith("pooler.") for key in missing):
        raise UserError(f"The towers' weights do not fit: {[*missing, *unexpected][0]!r} differs.")
    return bool(missing)


def _draw_pooler(pooler: Any, whose: str, config: Any, generator: torch.Generator | None) -> None:
    if generator is None:
        raise PoolerNeeded(f"{whose} no pooler weights", "give a pooler_seed to draw them")
    logger.warning_once(
        "A tower has no pooler weights; the modulus term starts from a random pooler."
    )
    nn.init.normal_(
        pooler.dense.weight, std=getattr(config, "initializer_range", 0.02), generator=generator
    )
    nn.init.zeros_(pooler.dense.bias)


def ensemble_encoder_of(
    members: Sequence[Encoder],
    weights: Sequence[float] | None = None,
    pooling: TowerPooling = "cls",
    normalize: bool = False,
    include_prompt: bool = True,
    **load_kwargs: Any,
) -> EnsembleEncoderModel:
    """Join encoders as :meth:`~st_jtcse.modules.EnsembleEncoder.from_members` does, without
    tokenizer.
    """
    with told_by_the_user():
        factors = check_weights(weights, len(members))
    models = [_load(member, "A member", load_kwargs) for member in members]
    form: dict[str, Any] = dict(pooling=pooling, normalize=normalize, include_prompt=include_prompt)
    for model in models:
        if isinstance(model.config, SumConfig) and not form.items() <= vars(model.config).items():
            raise UserError(
                f"A member is a {model.config.model_type} pooled by {model.config.pooling!r}, the "
                f"ensemble by {pooling!r}; sum models of one pooling and normalisation, or use "
                "MultiTokenizerEnsemble."
            )
    with told_by_the_user():
        check_shared([model.config for model in models])
    _compare_tokenizers(members, load_kwargs, OTHER_TOKENIZERS)
    parts = [
        (encoder, factor * own)
        for model, factor in zip(models, factors)
        for encoder, own in _encoders_of(model)
    ]
    encoders, products = zip(*parts)
    with told_by_the_user():
        config = EnsembleEncoderConfig([encoder.config for encoder in encoders], products, **form)
    ensemble = EnsembleEncoderModel(config)
    ensemble.to(dtype=models[0].dtype)  # type: ignore[call-arg]  # transformers wraps `to` without its types
    for own, encoder in zip(ensemble.members, encoders):
        weights_of = encoder.state_dict().items()
        own.load_state_dict({k: v for k, v in weights_of if not k.startswith("pooler.")})
    return ensemble


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


def tokenizer_of(source: Encoder, load_kwargs: dict[str, Any]) -> PreTrainedTokenizerBase:
    """Load the tokenizer stored beside an encoder; of the model's `load_kwargs` it takes
    its own.
    """
    if isinstance(source, PreTrainedModel):
        raise UserError("Encoders given as models come without a tokenizer; pass tokenizer=.")
    # Said in any case: where nothing is said, transformers asks on the terminal whether a model's
    # code may run.
    hub = {"trust_remote_code": False} | {
        key: load_kwargs[key] for key in _HUB_KEYS if key in load_kwargs
    }
    with reading(source) as place:
        # As Sentence-Transformers does, which is to load it again.
        tokenizer: PreTrainedTokenizerBase = AutoProcessor.from_pretrained(place, **hub)
    check_tokenizer(tokenizer, source)
    return tokenizer


def transformer_of(
    module: type[Module],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    max_seq_length: int | None = None,
    attn_implementation: str | None = None,
) -> Module:
    """Build a Transformer module around a model and its tokenizer, which are copied."""
    # Transformer builds itself from a folder only. The parts are written one by one, because
    # save_pretrained writes nothing in the other processes of a distributed run.
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        save_model(model, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        tokenizer.save_pretrained(folder)
        code = {"trust_remote_code": False}
        kwargs = code | {"dtype": model.dtype, "attn_implementation": attn_implementation}
        built = module(
            folder,
            max_seq_length=max_seq_length,
            model_kwargs=kwargs,
            processor_kwargs=dict(code),
            config_kwargs=dict(code),
        )
    # Of a tokenizer that was made without a side, transformers does not save the one that was set
    # later.
    copied: Any = built.tokenizer
    if copied is not None and copied.padding_side != tokenizer.padding_side:
        copied.padding_side = copied.init_kwargs["padding_side"] = tokenizer.padding_side
    lower_length(built)
    # The folder is gone: an adapter that named it as its base could not be loaded.
    built.model.name_or_path = ""
    return built


def _shape(tower: Any) -> dict[str, Any]:
    """Return what must be the same in both towers."""
    return {key: getattr(tower.config, key, None) for key in _SHAPE_KEYS} | {"dtype": tower.dtype}


def _load(source: Encoder, role: str, load_kwargs: dict[str, Any]) -> PreTrainedModel:
    """Load an encoder, whole; a missing pooler is None, or was drawn inside a twin."""
    hub = {key: load_kwargs[key] for key in ("revision", "trust_remote_code") if key in load_kwargs}
    config = source.config if isinstance(source, PreTrainedModel) else load_config(source, **hub)
    found = config.model_type
    if role == "A tower" and found in JOINED_TYPES:
        raise UserError(f"A tower must be one encoder, found {found!r}, which is made of several.")
    if found not in JOINED_TYPES:
        called = role if isinstance(source, PreTrainedModel) else f"{role}, here {source},"
        with told_by_the_user():
            tower_config(config, called)
    if isinstance(source, PreTrainedModel):
        if config.is_encoder_decoder:
            raise UserError(
                f"{role} must be an encoder or a decoder alone, found {found!r}, which is both."
            )
        return source
    with reading(source) as place:
        model, report = tower_class(config).from_pretrained(
            place, output_loading_info=True, **{"trust_remote_code": False} | load_kwargs
        )
    # Of a whole model, the pooler alone can be missing.
    if report["missing_keys"] and found not in JOINED_TYPES:
        # Drawn by twin_of instead, from a generator of its own.
        model.pooler = None
    return model


def _encoders_of(model: Any) -> list[tuple[PreTrainedModel, float]]:
    if model.config.model_type == TwinEncoderConfig.model_type:
        return [(tower, 1.0) for tower in model.towers]
    if model.config.model_type == EnsembleEncoderConfig.model_type:
        return list(zip(model.members, model.config.weights))
    return [(model, 1.0)]


def _compare_tokenizers(
    sources: Sequence[Encoder], load_kwargs: dict[str, Any], way_out: str
) -> None:
    folders = [source for source in sources if not isinstance(source, PreTrainedModel)]
    tokenizers = [tokenizer_of(folder, load_kwargs) for folder in folders]
    for folder, tokenizer in zip(folders[1:], tokenizers[1:]):
        if difference := tokenizer_difference(tokenizers[0], tokenizer):
            raise UserError(
                f"The tokenizers of {folders[0]} and {folder} differ in {difference}; {way_out}"
            )


@contextmanager
def told_by_the_user() -> Iterator[None]:
    """For what the modelling files refuse of a caller's choice: they travel without this package's
    errors.
    """
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from error
