"""The one way from a model's name to the model.

A name is ``embedded`` (the backbone of :mod:`st_jtcse.embedded`), a folder or a Hub id, and means
the same everywhere:

- A Sentence-Transformers model, told by its `modules.json`, is itself: modules, prompts, length and
  similarity.
- A plain encoder does not say how its tokens make an embedding: its pooling must be named, and is
  nowhere assumed.
- A named pooling takes the encoder of either alone, and pools its tokens so; what else came with it
  is left. So does a template, which pools the mask token of a prompt around each text.
- A twin and an ensemble pool their encoders themselves: a named pooling changes how.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling
from sentence_transformers.util import import_from_string, load_file_path
from torch import nn
from transformers import AutoConfig

from st_jtcse import embedded
from st_jtcse.errors import CodeNotTrusted, PoolingNeeded, UserError
from st_jtcse.modules.attention_pooling import AttentionPooling
from st_jtcse.modules.mask_prompts import mask_prompt
from st_jtcse.modules.padding import check_padding
from st_jtcse.modules.whole_models import (
    check_length,
    check_model,
    is_unreadable,
    loading_whole,
    reason_of,
)
from st_jtcse.pooling_names import TrainedPoolingName
from st_jtcse.towers import TwinEncoderModel
from st_jtcse.towers.modeling_tower_pooling import TOWER_POOLINGS, SumConfig

CONFIG = "config.json"
MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"


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
        PoolingNeeded: It is a plain encoder, and no pooling is named.
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
        return SentenceTransformer(modules=[encoder, *pooled], device=device)
    if not _listing(name, revision):
        with reading(name) as place:
            is_encoder = load_file_path(place, CONFIG, revision=revision) is not None
        if not is_encoder:
            raise UserError(_not_found(name))
        raise PoolingNeeded(
            f"{name} has no {MODULES}: it is a plain encoder, and nothing says how its tokens make "
            "an embedding",
            "name its pooling, e.g. pooling='cls'",
        )
    model = _as_shipped(name, device, hub, dict(model_kwargs or {}))
    check_model(model, name)
    check_length(model, max_seq_length)
    if max_seq_length is not None:
        model.max_seq_length = max_seq_length
    return model


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
    foreign = [
        entry["type"] for entry in entries if not entry["type"].startswith("sentence_transformers.")
    ]
    if hub["trust_remote_code"] or not foreign:
        with reading(name) as place:
            return SentenceTransformer(place, device=device, model_kwargs=model_kwargs, **hub)
    own = {f"{kind.__module__}.{kind.__name__}": kind for kind in own_modules()}
    unknown = next((kind for kind in foreign if kind not in own), None)
    if unknown is not None:
        raise CodeNotTrusted(
            f"The model '{name}' cannot be loaded: it needs the class {unknown}, whose code runs "
            "only if you allow it",
            "if you trust it, load it with trust_remote_code=True",
        )
    with reading(name) as place:
        kinds: list[Any] = [
            own.get(entry["type"]) or import_from_string(entry["type"]) for entry in entries
        ]
        given = {**hub, "model_kwargs": model_kwargs}
        modules = [
            kind.load(place, subfolder=entry["path"], **given)
            for kind, entry in zip(kinds, entries)
        ]
        settings = load_file_path(place, SETTINGS, revision=hub["revision"])
        told = json.loads(Path(settings).read_text(encoding="utf-8")) if settings else {}
    kept = ("prompts", "default_prompt_name", "similarity_fn_name")
    return SentenceTransformer(
        modules=modules, device=device, **{key: told[key] for key in kept if key in told}
    )


def own_modules() -> list[Any]:
    """Return the classes of this package that a saved model may name, as plain `save_pretrained`
    names all of them.
    """
    from st_jtcse import modules

    return [found for name in modules.__all__ if isinstance(found := getattr(modules, name), type)]


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
    return model


def load_config(
    name: str | os.PathLike[str], *, revision: str | None = None, trust_remote_code: bool = False
) -> Any:
    """Load the configuration of a model's encoder; the arguments are
    :func:`load_sentence_transformer`'s.
    """
    _check_encoder(name, revision)
    with reading(name) as place:
        return AutoConfig.from_pretrained(
            place, revision=revision, trust_remote_code=trust_remote_code
        )


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
    config = encoder.model.config
    if name is None and isinstance(config, SumConfig):
        raise UserError(
            f"A template is for one encoder, found a {config.model_type} model; name a pooling."
        )
    if name is None:
        return mask_prompt(encoder, str(template))
    if isinstance(config, SumConfig):
        pooling = _repooled(encoder, name)
        if name == "lasttoken":
            check_padding(encoder, pooling)
        return [pooling]
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
    size = encoder.get_embedding_dimension()
    if name == "attention":
        learned = None if source is None else _learned_attention(source, revision)
        return [
            learned
            if learned is not None and learned.embedding_dimension == size
            else AttentionPooling(size)
        ]
    if name != "first_last":
        pooling = Pooling(size, name)
        if name == "lasttoken":
            check_padding(encoder, pooling)
        return [pooling]
    # Sentence-Transformers' own layer pooling with weight on two layers only, which shall not learn
    # others.
    config.output_hidden_states = True
    depth = config.num_hidden_layers
    weights = torch.zeros(depth)
    weights[[0, -1]] = 1.0
    layers = WeightedLayerPooling(
        size,
        num_hidden_layers=depth,
        layer_start=1,
        layer_weights=nn.Parameter(weights, requires_grad=False),
    )
    return [layers, Pooling(size, "mean")]


def _check_first_token(encoder: Transformer) -> None:
    # Of an encoder-decoder the encoder comes first.
    if next(
        (part.is_causal for part in encoder.model.modules() if hasattr(part, "is_causal")), False
    ):
        raise UserError(
            f"The first token of a {encoder.model.config.model_type} model sees none of those "
            "behind it, so its CLS "
            "state says nothing of a text; choose the pooling 'mean' or 'lasttoken'."
        )


def _repooled(encoder: Transformer, name: TrainedPoolingName) -> Pooling:
    """Have a twin or an ensemble pool its encoders otherwise, which are left as they are; one row
    is behind it.
    """
    config = encoder.model.config
    possible = [
        each
        for each in TOWER_POOLINGS
        if each != "none" and (each != "pooler" or _has_poolers(encoder.model))
    ]
    if name not in possible:
        raise UserError(
            f"A {config.model_type} sums the pooled states of its encoders, which cannot be pooled "
            f"by {name!r}; use "
            f"one of {', '.join(possible)}."
        )
    config.pooling, config.normalize, config.include_prompt = name, False, True
    return Pooling(encoder.get_embedding_dimension(), "cls")


def _has_poolers(model: Any) -> bool:
    return isinstance(model, TwinEncoderModel) and bool(model.tower_poolers())


def located(name: str | os.PathLike[str]) -> str:
    """Return where a model lies: a folder, which is looked through for what a model needs, or a Hub
    id.
    """
    place = embedded.place(os.fspath(name))
    folder = Path(place)
    if not folder.exists():
        return place
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; give the folder of a saved model.")
    entries = read_listing(folder)
    if not entries and not (folder / CONFIG).is_file():
        raise UserError(
            f"{folder} holds neither {MODULES} nor {CONFIG}; give the folder of a saved model."
        )
    for entry in entries:
        # Normalisation has nothing to save, and git keeps no empty folder.
        if not (folder / entry["path"]).is_dir() and not entry["type"].endswith("Normalize"):
            missing = folder / entry["path"]
            raise UserError(
                f"{missing} does not exist, but {folder / MODULES} names it; copy the whole folder."
            )
    for entry in entries:
        settings = folder / entry["path"] / CONFIG
        if entry["type"].endswith("Pooling") and not settings.is_file():
            raise UserError(
                f"{settings} does not exist, so nothing says how tokens are pooled; copy the whole "
                "folder."
            )
    first = folder / entries[0]["path"] if entries else folder
    if (
        entries
        and entries[0]["type"].endswith("Transformer")
        and not list(first.glob("*r_config.json"))
    ):
        raise UserError(
            f"{first} lacks its tokenizer's settings (tokenizer_config.json); copy the whole "
            "folder."
        )
    if (first / CONFIG).is_file() and not [
        *first.glob("*.safetensors"),
        *first.glob("pytorch_model*.bin"),
    ]:
        raise UserError(
            f"{first} holds a configuration but no weights (model.safetensors); copy the whole "
            "folder."
        )
    return place


@contextmanager
def reading(name: str | os.PathLike[str]) -> Iterator[str]:
    """Give where a model lies, have only whole ones loaded, and tell in one sentence what the
    libraries cannot read.

    Args:
        name: ``embedded``, a folder or a Hub id.

    Raises:
        UserError: They could not, or something is missing there.
    """
    place = located(name)
    try:
        with loading_whole():
            yield place
    except Exception as error:
        if not is_unreadable(error):
            raise
        if "trust_remote_code" in str(error):
            raise CodeNotTrusted(
                f"The model '{name}' cannot be loaded: it comes with code, which runs only if you "
                "allow it",
                "if you trust it, load it with trust_remote_code=True",
            ) from error
        reason = reason_of(error, Path(place))
        if Path(name).exists() or name == embedded.NAME:
            raise UserError(
                f"The model '{name}' cannot be loaded ({reason[:300]}); give a complete one."
            ) from error
        raise UserError(_not_found(name, f" ({reason[:200]})")) from error


def _not_found(name: str | os.PathLike[str], reason: str = "") -> str:
    return (
        f"The model '{name}' cannot be loaded: it is not a local folder, and the Hub has no such "
        "model or cannot be "
        f"reached{reason}; check the name, give a folder, or use 'embedded'."
    )


def _listing(name: str | os.PathLike[str], revision: str | None) -> list[dict[str, Any]]:
    with reading(name) as place:
        path = load_file_path(place, MODULES, revision=revision)
    return [] if path is None else read_listing(Path(path).parent)


def _check_encoder(name: str | os.PathLike[str], revision: str | None) -> None:
    """Refuse a model that begins with no encoder, such as static embeddings: it has no states to
    pool.
    """
    first = next((entry["type"] for entry in _listing(name, revision)), "")
    if first.startswith("sentence_transformers.") and not issubclass(
        import_from_string(first), Transformer
    ):
        raise UserError(
            f"{name} begins with {first.rpartition('.')[2]} and has no encoder whose states could "
            "be pooled otherwise; "
            "leave its pooling as it is, or choose a model with an encoder."
        )


def _learned_attention(
    name: str | os.PathLike[str], revision: str | None
) -> AttentionPooling | None:
    """Return the attention pooling that a model was saved with, if it has one."""
    paths = [
        entry["path"]
        for entry in _listing(name, revision)
        if entry["type"].endswith(".AttentionPooling")
    ]
    with reading(name) as place:
        return (
            AttentionPooling.load(place, subfolder=paths[0], revision=revision) if paths else None
        )


def read_listing(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return a saved model's entries in order, each with its type and path; none for a plain
    encoder.
    """
    path = Path(folder, MODULES)
    if not path.is_file():
        return []
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        complete = all(isinstance(entry[key], str) for entry in entries for key in ("type", "path"))
    except (ValueError, TypeError, KeyError, RecursionError):
        complete = False
    if not complete:
        raise UserError(f"{path} is not a list of modules; save the model again.")
    return entries


def own_class(folder: str | os.PathLike[str]) -> str | None:
    """Return the name of the first class of this package, which Sentence-Transformers takes with
    the flag only.
    """
    types = (entry["type"] for entry in read_listing(folder))
    return next((name.rpartition(".")[2] for name in types if name.startswith("st_jtcse.")), None)
