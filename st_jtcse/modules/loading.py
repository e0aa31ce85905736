"""The one way from a model's name to the model.

A name is ``embedded`` (the backbone of :mod:`st_jtcse.embedded`), a folder or a Hub id, and means
the same everywhere:

- A Sentence-Transformers model, told by its `modules.json`, is itself: modules, prompts, length and
  similarity.
- A plain encoder does not say how its tokens make an embedding: its pooling must be named, and is
  nowhere assumed. Neither does what was saved as a CrossEncoder, or as another kind of model that
  embeds no sentences.
- A named pooling takes the encoder of either alone, and pools its tokens so; what else came with it
  is left. So does a template, which pools the mask token of a prompt around each text.
- A twin and an ensemble pool their encoders themselves: a named pooling changes how.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules import Module, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling
from sentence_transformers.util import import_from_string, load_file_path
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel

from st_jtcse import embedded
from st_jtcse.errors import CodeNotTrusted, PoolingNeeded, UserError
from st_jtcse.modules.attention_pooling import AttentionPooling
from st_jtcse.modules.joined_pooling import check_pooling
from st_jtcse.modules.mask_prompts import mask_prompt
from st_jtcse.modules.model_folders import (
    ADAPTER,
    CONFIG,
    EMBEDDER,
    MODULES,
    PLAIN,
    kind_in,
    located,
    read_listing,
    read_object,
    read_settings,
)
from st_jtcse.modules.padding import check_padding
from st_jtcse.modules.shared_words import share_words
from st_jtcse.modules.whole_models import (
    check_length,
    check_model,
    first_outputs,
    is_unreadable,
    loading_whole,
    reason_of,
    said_by,
    within_files,
)
from st_jtcse.pooling_names import TrainedPoolingName
from st_jtcse.towers import TwinEncoderModel
from st_jtcse.towers.modeling_tower_pooling import TOWER_POOLINGS, SumConfig, tower_class


def load_sentence_transformer(
    name: str | os.PathLike[str],
    *,
    pooling: TrainedPoolingName | None = None,
    template: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    device: str | None = None,
    max_seq_length: int | None = None,
    model_kwargs: Mapping[str, Any] | None = None,
) -> SentenceTransformer:
    """Load a model that embeds sentences.

    Args:
        name: ``embedded``, a folder or a Hub id.
        pooling: Pool the model's encoder so; None: the model is itself. A plain encoder needs it.
        template: Pool the mask token of a prompt instead, e.g. ``This sentence : "[X]" means
            [MASK].``
        revision: Commit, tag or branch on the Hub.
        trust_remote_code: Whether code that comes with the model may run.
        device: Where; None for Sentence-Transformers' choice.
        max_seq_length: Longest input in tokens; None: the model's own.
        model_kwargs: Further arguments of the encoder's `from_pretrained`, such as
            ``attn_implementation``, ``dtype``.

    Raises:
        PoolingNeeded: It is a plain encoder or a cross-encoder, and no pooling is named.
        UserError: It cannot be loaded, is not whole, or cannot be pooled so, or has no positions
            for such a length.

    Example:
        ::

            from st_jtcse.modules import load_sentence_transformer

            model = load_sentence_transformer("path/to/encoder_1", pooling="cls")
    """
    hub: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    if pooling is not None or template is not None:
        encoder = load_encoder(
            name, max_seq_length=max_seq_length, model_kwargs=model_kwargs, **hub
        )
        check_length(encoder, max_seq_length)
        pooled = pooling_of(encoder, pooling, name, revision, template)
        model = SentenceTransformer(modules=[encoder, *pooled], device=device)
    else:
        check_embeds(name, revision)
        model = _as_shipped(name, device, hub, dict(model_kwargs or {}))
        check_model(model, name)
        check_length(model, max_seq_length)
        if max_seq_length is not None:
            model.max_seq_length = max_seq_length
    try_out(model, name)
    return model


def saved_as(name: str | os.PathLike[str], revision: str | None = None) -> str:
    """Return what a model was saved as, as :func:`~st_jtcse.modules.model_folders.kind_in` says it.

    Raises UserError where there is no model.
    """
    with reading(name) as place:
        kind = kind_in(place, revision)
        if kind != PLAIN or load_file_path(place, CONFIG, revision=revision) is not None:
            return kind
    raise UserError(_not_found(name))


def check_embeds(name: str | os.PathLike[str], revision: str | None = None) -> None:
    """Refuse with PoolingNeeded a model whose tokens nothing makes an embedding."""
    kind = saved_as(name, revision)
    if kind == EMBEDDER:
        return
    told = f"has no {MODULES}: it is a {kind}" if kind == PLAIN else f"was saved as a {kind}"
    raise PoolingNeeded(
        f"{name} {told}, and nothing says how its tokens make an embedding",
        "name its pooling, e.g. pooling='cls'",
    )


def _as_shipped(
    name: str | os.PathLike[str],
    device: str | None,
    hub: dict[str, Any],
    model_kwargs: dict[str, Any],
) -> SentenceTransformer:
    """Load a Sentence-Transformers model as it is.

    Sentence-Transformers takes classes that are not its own with the flag only, and then those of
    any package, and code that lies in the folder. Those of this package need no trust in the
    folder: they are built here.
    """
    entries = _listing(name, hub["revision"])
    _check_kinds(name, entries)
    foreign = [
        entry["type"] for entry in entries if not entry["type"].startswith("sentence_transformers.")
    ]
    if hub["trust_remote_code"] or not foreign:
        with reading(name) as place:
            return SentenceTransformer(place, device=device, model_kwargs=model_kwargs, **hub)
    for kind in foreign:
        if not _is_own_module(kind):
            raise CodeNotTrusted(
                f"The model {os.fspath(name)!r} cannot be loaded: it needs the class {kind[:60]}, "
                "whose code runs only if you allow it",
                "if you trust it, load it with trust_remote_code=True",
            )
    with reading(name) as place:
        return _with_own_modules(place, entries, device, {**hub, "model_kwargs": model_kwargs})


def _with_own_modules(
    place: str, entries: Sequence[Mapping[str, Any]], device: str | None, given: dict[str, Any]
) -> SentenceTransformer:
    """Load a model of which some modules are of this package."""
    modules = []
    for entry in entries:
        kind: Any = import_from_string(entry["type"])
        modules.append(kind.load(place, subfolder=entry["path"], **given))
    settings = read_settings(place, given["revision"])
    return SentenceTransformer(
        modules=modules,
        device=device,
        prompts={key: text for key, text in settings.prompts.items() if text is not None},
        default_prompt_name=settings.default_prompt_name,
        similarity_fn_name=cast(Any, settings.similarity_fn_name),
        truncate_dim=settings.truncate_dim,
    )


def _is_own_module(kind: str) -> bool:
    """Tell whether a saved model names a module of this package, as plain `save_pretrained`
    does.
    """
    if not kind.startswith(f"{__package__}."):
        return False
    try:
        found: Any = import_from_string(kind)
    except (ImportError, AttributeError):
        return False
    is_module = isinstance(found, type) and issubclass(found, Module)
    return is_module and f"{found.__module__}.{found.__name__}" == kind


def load_encoder(
    name: str | os.PathLike[str],
    kind: type[Transformer] = Transformer,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    max_seq_length: int | None = None,
    model_kwargs: Mapping[str, Any] | None = None,
) -> Transformer:
    """Load the encoder of a model alone as a `kind`; the other arguments are
    :func:`load_sentence_transformer`'s.
    """
    hub = {"revision": revision, "trust_remote_code": trust_remote_code}
    _check_encoder(name, revision)
    limit = {} if max_seq_length is None else {"model_max_length": max_seq_length}
    with reading(name) as place:
        # Copies, because from_pretrained takes arguments out of what it is given.
        own = {**hub, **(model_kwargs or {})}
        encoder = kind(
            place, model_kwargs=own, config_kwargs=dict(hub), processor_kwargs=hub | limit
        )
    check_model(encoder, name)
    return encoder


def load_cross_encoder(
    name: str | os.PathLike[str],
    *,
    num_labels: int | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    max_seq_length: int | None = None,
    model_kwargs: Mapping[str, Any] | None = None,
) -> CrossEncoder:
    """Load a cross-encoder; the arguments are :func:`load_sentence_transformer`'s.

    An encoder that is none is given a head of `num_labels` scores, drawn from the global generator.
    """
    hub: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    with reading(name) as place:
        own = dict(model_kwargs or {})
        model = CrossEncoder(
            place, num_labels=num_labels, max_length=max_seq_length, model_kwargs=own, **hub
        )
    check_model(model, name)
    check_length(model, max_seq_length)
    try_out(model, name)
    return model


def load_config(
    name: str | os.PathLike[str], *, revision: str | None = None, trust_remote_code: bool = False
) -> Any:
    """Load the configuration of a model's encoder; the arguments are
    :func:`load_sentence_transformer`'s.
    """
    _check_encoder(name, revision)
    with reading(name) as place:
        adapter = load_file_path(place, ADAPTER, revision=revision)
        # The configuration is that of the model that was adapted.
        if adapter is not None:
            place = located(read_object(Path(adapter))["base_model_name_or_path"])
            revision = None
        return AutoConfig.from_pretrained(
            place, revision=revision, trust_remote_code=trust_remote_code
        )


def build(
    name: str | os.PathLike[str],
    config: Any,
    *,
    cross_encoder: bool = False,
    to_blame: str | None = None,
    trust_remote_code: bool = False,
) -> PreTrainedModel:
    """Build a model with weights drawn from the global generator, or with none where torch's device
    is ``meta``.

    Args:
        name: The model that the configuration is of.
        config: The configuration.
        cross_encoder: Whether it scores pairs.
        to_blame: What changed the configuration; None: it is as the model came with it.
        trust_remote_code: Whether code that comes with the model may run.

    Raises:
        UserError: There is no such model, or it would be far larger than the files that it came in.
    """
    kind: Any = AutoModelForSequenceClassification if cross_encoder else tower_class(config)
    with (
        reading(name, to_blame) as place,
        within_files(place if to_blame is None else None),
    ):
        model: PreTrainedModel = kind.from_config(config, trust_remote_code=trust_remote_code)
    return model


def pooling_of(
    encoder: Transformer,
    name: TrainedPoolingName | None,
    source: str | os.PathLike[str] | None = None,
    revision: str | None = None,
    template: str | None = None,
) -> list[nn.Module]:
    """Return the modules that make an embedding of an encoder's tokens.

    Args:
        encoder: The encoder; it is told to give all layers where the pooling needs them.
        name: The pooling; None beside a template.
        source: The model that the encoder is of: an attention pooling that it learned is gone on
            with.
        revision: Commit, tag or branch of `source` on the Hub.
        template: Pool the mask token of this prompt instead.

    Raises:
        UserError: The encoder cannot be pooled so, or its last token depends on padding.
    """
    config, size = encoder.model.config, encoder.get_embedding_dimension()
    if name is None and isinstance(config, SumConfig):
        raise UserError(
            f"A template is for one encoder, found a {config.model_type} model; name a pooling."
        )
    if name is None:
        return mask_prompt(encoder, str(template))
    if isinstance(config, SumConfig):
        pooling = _repooled(encoder, name)
    else:
        _check_can_pool(encoder, name)
        if name == "attention":
            return [_attention_pooling(size, source, revision)]
        if name == "first_last":
            return [_first_and_last_layer(encoder), Pooling(size, "mean")]
        pooling = Pooling(size, name)
    if name == "lasttoken":
        check_padding(encoder, pooling)
    return [pooling]


def _first_and_last_layer(encoder: Transformer) -> WeightedLayerPooling:
    """Return Sentence-Transformers' own layer pooling with weight on two layers only, which shall
    not learn others.
    """
    config = encoder.model.config
    config.output_hidden_states = True
    weights = torch.zeros(config.num_hidden_layers)
    weights[[0, -1]] = 1.0
    return WeightedLayerPooling(
        encoder.get_embedding_dimension(),
        num_hidden_layers=len(weights),
        layer_start=1,
        layer_weights=nn.Parameter(weights, requires_grad=False),
    )


def _check_can_pool(encoder: Transformer, name: TrainedPoolingName) -> None:
    """Refuse a pooling that makes no sense for an encoder."""
    config = encoder.model.config
    if name == "pooler":
        raise UserError(
            f"The pooling 'pooler' is for twins, found a {config.model_type} model; use 'cls' or "
            "'mean'."
        )
    # Code of an earlier version, which came with the model.
    if name != "cls" and getattr(config, "cls_only", False):
        raise UserError(
            f"A {config.model_type} model computes its CLS state only, so it cannot be pooled by "
            f"{name!r}; use 'cls'."
        )
    if name == "cls":
        _check_first_token(encoder)


def _check_first_token(encoder: Transformer) -> None:
    told = (part.is_causal for part in encoder.model.modules() if hasattr(part, "is_causal"))
    # Of an encoder-decoder the encoder comes first.
    if next(told, False):
        raise UserError(
            f"The first token of a {encoder.model.config.model_type} model sees none of those "
            "behind it, so its CLS state says nothing of a text; choose the pooling 'mean' or "
            "'lasttoken'."
        )


def _repooled(encoder: Transformer, name: TrainedPoolingName) -> Pooling:
    """Have a twin or an ensemble pool its encoders otherwise, which are left as they are; one row
    is behind it.
    """
    config = encoder.model.config
    possible = [each for each in TOWER_POOLINGS if each != "none"]
    if not _has_poolers(encoder.model):
        possible.remove("pooler")
    if name not in possible:
        raise UserError(
            f"A {config.model_type} sums the pooled states of its encoders, which cannot be pooled "
            f"by {name!r}; use one of {', '.join(possible)}."
        )
    config.pooling, config.normalize, config.include_prompt = name, False, True
    return Pooling(encoder.get_embedding_dimension(), "cls")


def _has_poolers(model: Any) -> bool:
    return isinstance(model, TwinEncoderModel) and bool(model.tower_poolers())


@contextmanager
def reading(name: str | os.PathLike[str], to_blame: str | None = None) -> Iterator[str]:
    """Give where a model lies, have only whole ones loaded, and tell in one sentence what the
    libraries cannot read.

    Args:
        name: ``embedded``, a folder or a Hub id.
        to_blame: What to correct where the model itself was read already; None: the model.

    Raises:
        UserError: They could not, or something is missing there.
    """
    place = located(name)
    try:
        with loading_whole():
            yield place
    except BaseException as error:
        if not is_unreadable(error):
            raise
        if "trust_remote_code" in str(error):
            raise CodeNotTrusted(
                f"The model {os.fspath(name)!r} cannot be loaded: it comes with code, which runs "
                "only if you allow it",
                "if you trust it, load it with trust_remote_code=True",
            ) from error
        if to_blame is not None:
            raise UserError(
                f"No model like {os.fspath(name)!r} can be built with {to_blame} "
                f"({said_by(error)[:300]}); correct it."
            ) from error
        reason = reason_of(error, Path(place))
        if Path(name).exists() or name == embedded.NAME:
            raise UserError(
                f"The model {os.fspath(name)!r} cannot be loaded ({reason[:300]}); give a complete "
                "one."
            ) from error
        raise UserError(_not_found(name, f" ({reason[:200]})")) from error


def try_out(model: BaseModel, name: str | os.PathLike[str]) -> None:
    """Have a loaded model read two short inputs, and refuse one that cannot, or gives what is not
    finite.

    Many values of a configuration make sense or not only where something is computed with them.
    Nothing is drawn and no state of the model changes.

    Args:
        model: A SentenceTransformer or a CrossEncoder.
        name: What it was loaded by.
    """
    with reading(name):
        check_pooling(model)
        share_words(model)
        found = first_outputs(model)
    if found is not None and not found.isfinite().all():
        raise UserError(
            f"The model {os.fspath(name)!r} gives numbers that are not finite for a short text; "
            "restore the configuration and weights that it was saved with."
        )


def _not_found(name: str | os.PathLike[str], reason: str = "") -> str:
    return (
        f"The model {os.fspath(name)!r} cannot be loaded: it is not a local folder, and the Hub "
        f"has no such model or cannot be reached{reason}; check the name, give a folder, or use "
        "'embedded'."
    )


def _listing(name: str | os.PathLike[str], revision: str | None) -> list[dict[str, Any]]:
    with reading(name) as place:
        path = load_file_path(place, MODULES, revision=revision)
    if path is None:
        return []
    return read_listing(Path(path).parent)


def _check_kinds(name: str | os.PathLike[str], entries: Sequence[Mapping[str, str]]) -> None:
    """Refuse classes of Sentence-Transformers that are no modules."""
    for entry in entries:
        if entry["type"].startswith("sentence_transformers."):
            with reading(name):
                kind: Any = import_from_string(entry["type"])
            if not isinstance(kind, type) or not issubclass(kind, nn.Module):
                raise UserError(
                    f"{name}: {MODULES} names {entry['type']}, which is no module; save the model "
                    "again."
                )


def _check_encoder(name: str | os.PathLike[str], revision: str | None) -> None:
    """Refuse a model that begins with no encoder, such as static embeddings: it has no states to
    pool.
    """
    entries = _listing(name, revision)[:1]
    _check_kinds(name, entries)
    for entry in entries:
        first = entry["type"]
        if first.startswith("sentence_transformers.") and not issubclass(
            import_from_string(first), Transformer
        ):
            raise UserError(
                f"{name} begins with {first.rpartition('.')[2]} and has no encoder whose states "
                "could be pooled otherwise; leave its pooling as it is, or choose a model with an "
                "encoder."
            )


def _attention_pooling(
    size: int, source: str | os.PathLike[str] | None, revision: str | None
) -> AttentionPooling:
    """Return the attention pooling that a model was saved with, else one that has learned
    nothing.
    """
    entries = [] if source is None else _listing(source, revision)
    paths = [entry["path"] for entry in entries if entry["type"].endswith(".AttentionPooling")]
    if source is None or not paths:
        return AttentionPooling(size)
    with reading(source) as place:
        kept = AttentionPooling.load(place, subfolder=paths[0], revision=revision)
    if kept.embedding_dimension == size:
        return kept
    return AttentionPooling(size)
