"""From a recipe's model block to a SentenceTransformer ready to train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Pooling,
    WeightedLayerPooling,
)
from torch import nn
from transformers import AutoConfig, PreTrainedModel

from st_jtcse import embedded
from st_jtcse.errors import CodeNotTrusted, PoolerNeeded, PoolingNeeded, UserError, ways_out
from st_jtcse.modules import (
    PoolerModulusHead,
    TrainingHead,
    TwinCrossAttentionEncoder,
    ensemble_of,
    loading,
)
from st_jtcse.modules.joined_pooling import rows_behind
from st_jtcse.modules.joining import tokenizer_of, transformer_of
from st_jtcse.modules.loading import load_sentence_transformer, pooling_of
from st_jtcse.modules.model_folders import check_counts
from st_jtcse.modules.saved_form import SavedForm, shared_form
from st_jtcse.modules.whole_models import check_length
from st_jtcse.recipe.blocks import WeightedModelSpec
from st_jtcse.recipe.schema import STAGE_PREFIX, ModelSpec, StageSpec
from st_jtcse.towers import TwinEncoderConfig
from st_jtcse.training.run_folder import RunFolder

# How a recipe says what a model leaves open.
KEYS = {
    PoolingNeeded: "name its pooling beside it, e.g. 'pooling: cls', or train it as "
    "'cross_encoder' if it shall score pairs",
    PoolerNeeded: "say 'random_pooler: true' beside 'towers' to draw one, or 'ictm_weight: 0' in "
    "the loss",
    CodeNotTrusted: "if you trust it, say 'trust_remote_code: true'",
}

# What is to blame where a changed configuration makes no model.
OF_FRESH = "what 'fresh' changes"

Resolve = Callable[[str], str]


def resolver(folder: RunFolder) -> Resolve:
    """Return the function that turns a recipe's model name into a folder or Hub id; a run has the
    ``stage:`` models.
    """

    def resolve(name: str) -> str:
        if not name.startswith(STAGE_PREFIX):
            return embedded.place(name)
        stage = name.removeprefix(STAGE_PREFIX)
        if folder.record(stage) is None:
            raise UserError(
                f"{name} is not finished in {folder.path}; run it first with --stage {stage}, or "
                "all stages without --stage."
            )
        return str(folder.stage(stage))

    return resolve


def start_model(stage: StageSpec, resolve: Resolve, seed: int) -> Any:
    """Assemble the model that a stage starts from, with :func:`resolver`'s function.

    One that is trained has its weights in float32, if nothing else is said: half precision loses
    most of what a step adds to them. Raises UserError for float16, in which AdamW divides by zero.
    """
    spec = stage.model
    if stage.loss is not None and spec.dtype is None:
        spec = spec.model_copy(update={"dtype": "float32"})
    if spec.scores_pairs:
        model: Any = build_cross_encoder(spec, resolve)
    else:
        with_head = stage.loss is not None and stage.declaration.needs_pooler(stage.loss.arguments)
        model = build_model(spec, resolve, with_head=with_head, seed=seed)
    if stage.loss is not None and any(
        weight.dtype == torch.float16 for weight in model.parameters()
    ):
        raise UserError(
            f"Stage {stage.name!r}: weights in float16 cannot be trained, because AdamW divides by "
            "zero in it; remove 'dtype' from its model, or say 'dtype: bfloat16'."
        )
    return model


def build_model(
    spec: ModelSpec, resolve: Resolve, *, with_head: bool, seed: int
) -> SentenceTransformer:
    """Assemble the model a stage starts from.

    Args:
        spec: The recipe's model block.
        resolve: From :func:`resolver`.
        with_head: Whether the loss needs the towers' pooler outputs.
        seed: Seed of poolers that are drawn.

    Raises:
        UserError: A model cannot be loaded, or does not fit the block.
    """
    with ways_out(KEYS):
        if spec.members:
            members = [load_frozen(member, resolve) for member in spec.members]
            weights = [member.weight for member in spec.members]
            return ensemble_of(members, weights, max_seq_length=spec.max_seq_length)
        model = _twin(spec, resolve, seed) if spec.towers else _single(spec, resolve)
        first = spec.towers[0] if spec.towers else str(spec.base)
        loading.try_out(model, resolve(first))
    check_length(model, spec.max_seq_length)
    modules = list(model)
    if with_head:
        modules.insert(1, PoolerModulusHead())
    if spec.training_head:
        size = int(model.get_embedding_dimension() or 0)
        modules.append((Dense if spec.training_head == "kept" else TrainingHead)(size, size))
    if len(modules) > len(model):
        with ways_out(KEYS):
            model = _with_modules(model, modules)
    return model


def build_cross_encoder(spec: ModelSpec, resolve: Resolve) -> CrossEncoder:
    """Assemble the cross-encoder a stage starts from; its head is drawn from the global generator,
    which is seeded.
    """
    name = resolve(str(spec.cross_encoder))
    with ways_out(KEYS):
        model = loading.load_cross_encoder(
            name,
            num_labels=spec.num_labels,
            max_seq_length=spec.max_seq_length,
            revision=spec.revision,
            trust_remote_code=spec.trust_remote_code,
            model_kwargs=_model_kwargs(spec),
        )
    return model


def load_frozen(spec: WeightedModelSpec, resolve: Resolve) -> SentenceTransformer:
    """Load a model that is not trained, a teacher or a member of an ensemble, with
    :func:`resolver`'s function.
    """
    name = resolve(spec.model)
    with ways_out(KEYS):
        return load_sentence_transformer(
            name,
            pooling=spec.pooling,
            revision=spec.revision,
            trust_remote_code=spec.trust_remote_code,
            model_kwargs=_model_kwargs(spec),
        )


def load_config(name: str, spec: ModelSpec) -> Any:
    """Load the configuration only of a model in a recipe's block, by its folder or Hub id."""
    with ways_out(KEYS):
        return loading.load_config(
            name, revision=spec.revision, trust_remote_code=spec.trust_remote_code
        )


def changed_config(name: str, spec: ModelSpec) -> Any:
    """Load the configuration of the encoder that a recipe's block makes of a model: of one tower,
    and with what `fresh` changes.
    """
    config = load_config(name, spec)
    if spec.tower is not None:
        if config.model_type != TwinEncoderConfig.model_type:
            raise UserError(
                f"'tower' needs a twin as 'base', found a {config.model_type} model; remove "
                "'tower'."
            )
        config = config.tower
    if spec.fresh is None:
        return config
    settings = config.to_dict()
    unknown = [key for key in spec.fresh if key not in settings]
    if unknown:
        raise UserError(
            f"'fresh' changes {unknown[0]}, which the configuration of {spec.base} does not have."
        )
    check_counts("fresh.", spec.fresh)
    with loading.reading(name, OF_FRESH):
        return AutoConfig.for_model(settings.pop("model_type"), **settings | spec.fresh)


def _model_kwargs(spec: ModelSpec | WeightedModelSpec) -> dict[str, Any]:
    """Return what `from_pretrained` is told of a model's attention and number format."""
    given = {"attn_implementation": spec.attn_implementation, "dtype": spec.dtype}
    return {key: value for key, value in given.items() if value is not None}


def _twin(spec: ModelSpec, resolve: Resolve, seed: int) -> SentenceTransformer:
    first, second = (resolve(name) for name in spec.towers or ())
    if spec.pooling is not None:
        form = SavedForm(pooling=spec.pooling)
    else:
        form = shared_form((first, second), revision=spec.revision)
    encoder = TwinCrossAttentionEncoder.from_towers(
        first,
        second,
        spec.cross_attention_every,
        spec.cross_residual,
        seed if spec.random_pooler else None,
        **form.of_towers,
        max_seq_length=spec.max_seq_length or form.max_seq_length,
        revision=spec.revision,
        trust_remote_code=spec.trust_remote_code,
        **_model_kwargs(spec),
    )
    return SentenceTransformer(modules=[encoder, *rows_behind(encoder)], **form.of_model)


def _single(spec: ModelSpec, resolve: Resolve) -> SentenceTransformer:
    name = resolve(str(spec.base))
    hub: dict[str, Any] = {"revision": spec.revision, "trust_remote_code": spec.trust_remote_code}
    if spec.pooling is not None or spec.template is not None:
        encoder = _encoder(name, spec, hub, spec.max_seq_length)
        pooled = pooling_of(encoder, spec.pooling, name, spec.revision, spec.template)
        return SentenceTransformer(modules=[encoder, *pooled])
    shipped = load_sentence_transformer(
        name, max_seq_length=spec.max_seq_length, model_kwargs=_model_kwargs(spec), **hub
    )
    is_twin = getattr(shipped.config, "model_type", None) == TwinEncoderConfig.model_type
    if not is_twin and (spec.tower, spec.fresh, spec.layers) == (None, None, None):
        return shipped
    encoder, rest = _encoder(name, spec, hub, shipped.max_seq_length), list(shipped)[1:]
    if spec.fresh is not None or spec.layers is not None:
        rest = [_fitted(module, encoder) for module in rest]
    return _with_modules(shipped, [encoder, *rest])


def _encoder(
    name: str, spec: ModelSpec, hub: dict[str, Any], max_seq_length: int | None
) -> Transformer:
    config = changed_config(name, spec)
    if spec.fresh is not None:
        with loading.reading(name, OF_FRESH):
            encoder = transformer_of(
                Transformer,
                _fresh(name, config, spec),
                tokenizer_of(name, hub),
                max_seq_length,
                spec.attn_implementation,
            )
    else:
        is_twin = spec.tower is not None or config.model_type == TwinEncoderConfig.model_type
        kind = TwinCrossAttentionEncoder if is_twin else Transformer
        encoder = loading.load_encoder(
            name, kind, max_seq_length=max_seq_length, model_kwargs=_model_kwargs(spec), **hub
        )
        if spec.tower is not None:
            twin: Any = encoder
            encoder = transformer_of(
                Transformer,
                twin.model.towers[spec.tower - 1],
                twin.tokenizer,
                max_seq_length,
                spec.attn_implementation,
            )
    if spec.layers is not None:
        _keep_layers(encoder.model, spec.layers)
    return encoder


def _fitted(module: nn.Module, encoder: Transformer) -> nn.Module:
    """Return a module that came with an encoder for one of another size or depth, which may be the
    same.
    """
    size = encoder.get_embedding_dimension()
    if isinstance(module, Pooling):
        return Pooling(**module.get_config_dict() | {"embedding_dimension": size})
    given = getattr(module, "in_features", getattr(module, "embedding_dimension", size))
    if given != size or isinstance(module, WeightedLayerPooling):
        raise UserError(
            f"The {type(module).__name__} of 'base' does not fit what 'layers' and 'fresh' make of "
            "its encoder; name the pooling, e.g. 'pooling: cls'."
        )
    return module


def _fresh(name: str, config: Any, spec: ModelSpec) -> PreTrainedModel:
    # Drawn from the global generator, which the stage has seeded.
    model: Any = loading.build(
        name, config, to_blame=OF_FRESH, trust_remote_code=spec.trust_remote_code
    )
    as_it_is = spec.dtype in (None, "auto")
    return cast(PreTrainedModel, model if as_it_is else model.to(getattr(torch, str(spec.dtype))))


def _with_modules(model: SentenceTransformer, modules: list[nn.Module]) -> SentenceTransformer:
    """Return a model of other modules and the same prompts and similarity."""
    return SentenceTransformer(
        modules=modules,
        prompts={key: text for key, text in model.prompts.items() if text is not None},
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
    )


def _keep_layers(model: PreTrainedModel, layers: list[int]) -> None:
    encoder: Any = getattr(model, "encoder", None)
    depth = len(getattr(encoder, "layer", ()))
    if max(layers) >= depth:
        raise UserError(
            f"'layers' names layer {max(layers)}, but the model has {depth}; the first is 0."
        )
    encoder.layer = nn.ModuleList(encoder.layer[index] for index in layers)
    model.config.num_hidden_layers = len(layers)
