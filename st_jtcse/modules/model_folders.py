"""What lies in the folder of a saved model: the files that say how it is built, read in one place.

A folder comes from anywhere, and libraries take what its files hold as it is. So what is read here
has the type that it should have, names no place outside the folder, and asks for nothing that
would take all memory before anything could be said.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

from pydantic import BaseModel, PositiveInt, ValidationError, model_validator
from sentence_transformers.util import load_file_path

from st_jtcse import embedded
from st_jtcse.errors import UserError
from st_jtcse.modules.whole_models import WEIGHTS, fault_of
from st_jtcse.wording import misfit, shown

CONFIG = "config.json"
MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
ADAPTER = "adapter_config.json"

# What Sentence-Transformers calls a model that embeds sentences; and one of transformers alone.
EMBEDDER, PLAIN = "SentenceTransformer", "plain encoder"
# The endings of files that libraries open.
_OPENED = (".json", ".safetensors", ".bin", ".txt", ".model", ".jinja", ".md")
# The longest name that disks take; and that of a class, beyond which it is quoted in part.
_LONGEST, _LONGEST_KIND = 255, 40
# The short ones of them: vocabularies and lists of weights are left to the libraries.
_SETTINGS_FILES = (
    CONFIG,
    SETTINGS,
    "sentence_*_config.json",
    "tokenizer_config.json",
    ADAPTER,
    "generation_config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "multi_tokenizer_ensemble.json",
)
# Counts that libraries go through one by one before they look at a weight.
_MOST = {
    "num_hidden_layers": 1000,
    "num_layers": 1000,
    "n_layers": 1000,
    "n_layer": 1000,
    "num_labels": 1_000_000,
}


class Settings(BaseModel, strict=True):
    """What Sentence-Transformers saves of a model as a whole."""

    model_type: str = EMBEDDER
    prompts: dict[str, str | None] = {}
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None
    truncate_dim: PositiveInt | None = None

    @model_validator(mode="after")
    def _has_its_prompt(self) -> Settings:
        # Sentence-Transformers knows these two without being told.
        known = {"query", "document", *self.prompts}
        if self.default_prompt_name is not None and self.default_prompt_name not in known:
            raise ValueError(self.default_prompt_name)
        return self


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
    check_files(folder)
    entries = read_listing(folder)
    if not entries and not (folder / CONFIG).is_file():
        found = f"neither {MODULES} nor {CONFIG}"
        if (folder / ADAPTER).is_file():
            found = f"an adapter alone, {found}"
        raise UserError(f"{folder} holds {found}; give the folder of a saved model.")
    _check_modules(folder, entries)
    _check_encoder(folder / entries[0]["path"] if entries else folder, entries)
    return place


def _check_modules(folder: Path, entries: Sequence[Mapping[str, str]]) -> None:
    """Refuse a folder that lacks one of its modules' folders."""
    for entry in entries:
        path = folder / entry["path"]
        # Normalisation has nothing to save, and git keeps no empty folder.
        if not path.is_dir() and not entry["type"].endswith("Normalize"):
            raise UserError(
                f"{path} does not exist, but {folder / MODULES} names it; copy the whole folder."
            )
        if path.is_dir() and path != folder:
            check_files(path)
    for entry in entries:
        settings = folder / entry["path"] / CONFIG
        if entry["type"].endswith("Pooling") and not settings.is_file():
            raise UserError(
                f"{settings} does not exist, so nothing says how tokens are pooled; copy the whole "
                "folder."
            )


def _check_encoder(first: Path, entries: Sequence[Mapping[str, str]]) -> None:
    """Refuse the folder of a first module without its tokenizer's settings, or without weights."""
    is_encoder = bool(entries) and entries[0]["type"].endswith("Transformer")
    if is_encoder and not list(first.glob("*r_config.json")):
        raise UserError(
            f"{first} lacks its tokenizer's settings (tokenizer_config.json); copy the whole "
            "folder."
        )
    weights = [path for kind in WEIGHTS for path in first.glob(kind)]
    if not (first / CONFIG).is_file() or weights:
        return
    exported = [path for kind in ("*.onnx", "openvino*.xml") for path in first.rglob(kind)]
    way_out = "copy the whole folder"
    if exported:
        way_out = (
            f"{exported[0].relative_to(first)} is an export, which cannot be trained or changed; "
            "get the model's own weights"
        )
    raise UserError(f"{first} holds a configuration but no weights (model.safetensors); {way_out}.")


def check_files(folder: Path) -> None:
    """Refuse what would be opened and is no file, and settings that are not what they should be."""
    for path in sorted(folder.iterdir()):
        if not path.name.endswith(_OPENED) or path.is_file():
            continue
        if path.is_dir():
            found = "a folder"
        else:
            found = "neither a file nor a folder" if path.exists() else "a link that leads nowhere"
        raise UserError(f"{path} is {found}, but should be a file; copy the whole folder again.")
    for path in sorted({path for name in _SETTINGS_FILES for path in folder.glob(name)}):
        check_counts(f"{path}: ", read_object(path))


def read_object(path: Path) -> dict[str, Any]:
    """Return what one of a model's JSON files holds; raises UserError where it is no object."""
    if fault := fault_of(path):
        raise UserError(f"{path} {fault}; copy it again, or save the model again.")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def check_counts(place: str, settings: Mapping[str, Any]) -> None:
    """Refuse with a UserError counts beyond those of any model; `place` is what goes before their
    key.
    """
    for key, value in _numbers(settings):
        most = _MOST.get(key.rpartition(".")[2])
        if most is not None and value > most:
            raise UserError(
                f"{place}{key}: expected at most {most}, found {shown(value)}. Correct it."
            )


def _numbers(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of nested settings by their keys, joined by dots."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{above}{key}.")
        elif isinstance(value, int | float):
            yield f"{above}{key}", value


def read_listing(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return a saved model's entries in order, each with its type and path; none for a plain
    encoder.
    """
    path = Path(folder, MODULES)
    if not path.is_file():
        return []
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        complete = isinstance(entries, list) and all(
            isinstance(entry[key], str) for entry in entries for key in ("name", "type", "path")
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        complete = False
    if not complete:
        raise UserError(f"{path} is not a list of modules; save the model again.")
    if not entries:
        raise UserError(f"{path} lists no module; save the model again.")
    names = [entry["name"] for entry in entries]
    if len(set(names)) < len(names):
        raise UserError(f"{path} lists two modules of one name; save the model again.")
    for entry in entries:
        if not _is_inside(entry["path"]):
            raise UserError(
                f"{path} names {shown(entry['path'])}, which is no place in the model's folder; "
                "save the model again."
            )
    return entries


def _is_inside(path: str) -> bool:
    """Tell whether a path stays in the folder that it is relative to, and can be one at all."""
    try:
        length = len(path.encode())
    except UnicodeEncodeError:  # Half a character.
        return False
    # Both kinds of slashes: a folder may have been written anywhere.
    parts = PureWindowsPath(path)
    is_outside = bool(parts.anchor) or ".." in parts.parts
    return not is_outside and "\0" not in path and length <= _LONGEST


def read_settings(place: str, revision: str | None = None) -> Settings:
    """Return what was saved of a model as a whole; raises UserError where it makes no sense."""
    found = load_file_path(place, SETTINGS, revision=revision)
    if found is None:
        return Settings()
    values = read_object(Path(found))
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":
        raise UserError(
            f"{found}: default_prompt_name: expected the name of one of its prompts, found "
            f"{shown(values['default_prompt_name'])}. Correct it."
        )
    key, *inner = map(str, first["loc"])
    annotation: Any = str | None if inner else Settings.model_fields[key].annotation
    named = ".".join([key, *inner[:1]])
    raise UserError(f"{found}: {named}: {misfit(first, annotation, first['input'])}")


def own_class(folder: str | os.PathLike[str]) -> str | None:
    """Return the name of the first class of this package, which Sentence-Transformers takes with
    the flag only.
    """
    types = (entry["type"] for entry in read_listing(folder))
    return next((name.rpartition(".")[2] for name in types if name.startswith("st_jtcse.")), None)


def kind_in(place: str, revision: str | None = None) -> str:
    """Return what was saved: :data:`EMBEDDER`, another kind of Sentence-Transformers' by its
    class's name, or :data:`PLAIN`.

    Sentence-Transformers would make an embedder of any of them, by a pooling of its own choice.
    """
    if load_file_path(place, MODULES, revision=revision) is None:
        return PLAIN
    kind = read_settings(place, revision).model_type
    if kind.isidentifier() and len(kind) <= _LONGEST_KIND:
        return kind
    return shown(kind)
