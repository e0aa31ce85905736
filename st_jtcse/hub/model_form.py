"""What a saved model is, as far as its users have to know: how it loads and how its tokens make an
embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from sentence_transformers.base.modules import Transformer

from st_jtcse.modules.joining import JOINED_TYPES
from st_jtcse.modules.model_folders import CONFIG, SETTINGS, own_class, read_listing, read_object
from st_jtcse.pooling_names import PoolingName

# plain: by Sentence-Transformers alone; registered: after `import st_jtcse`, or with the flag;
# own_modules: with both; remote_code: with the flag, for code that came with the model it starts
# from.
Loading = Literal["plain", "registered", "own_modules", "remote_code"]
# By the modules before the normalization and the last pooling's mode.
_POOLINGS: dict[str, PoolingName] = {
    **{
        f"Transformer Pooling {name}": name
        for name in get_args(PoolingName)
        if name != "first_last"
    },
    "Transformer WeightedLayerPooling Pooling mean": "first_last",
}


@dataclass(frozen=True)
class ModelForm:
    """How a saved model is used."""

    # The encoder's model type, or the class that stands for it; None if the folder holds no model
    architecture: str | None
    cross_encoder: bool  # whether it scores pairs instead of embedding sentences
    own_module: str | None  # the class of this package that it needs, if any
    loading: Loading  # what it needs to load
    # How the encoder's tokens make the embedding; None where plain transformers cannot say it
    # shortly
    pooling: PoolingName | None
    prompt: str  # what stands before every sentence; empty for nothing
    normalize: bool  # whether embeddings have length 1
    images: bool = False  # whether it reads images and no text

    def __str__(self) -> str:
        """Name the kind of model."""
        kind = "cross-encoder" if self.cross_encoder else "encoder"
        return f"{self.architecture} {kind}"

    def usage(self, place: str) -> str:
        """Return a line of Python that loads the model from a folder or Hub id and uses it."""
        kind, call = "SentenceTransformer", 'encode(["A sentence."])'
        if self.cross_encoder:
            kind, call = "CrossEncoder", 'predict([("One text.", "Another.")])'
        elif self.images:
            call = 'encode(["photo.jpg"])'
        trust = ", trust_remote_code=True" if self.loading in ("own_modules", "remote_code") else ""
        plugin = "import st_jtcse; " if self.loading in ("registered", "own_modules") else ""
        return f"{plugin}from sentence_transformers import {kind}; {kind}({place!r}{trust}).{call}"


def model_form(folder: Path) -> ModelForm:
    """Read the form of a saved model from its configuration files; raises UserError where one is
    not a JSON object.
    """
    config = read_json(folder / CONFIG)
    listing = read_listing(folder)
    names = [entry["type"].rpartition(".")[2] for entry in listing]
    own = own_class(folder)
    normalize = names[-1:] == ["Normalize"]
    paths = [entry["path"] for entry, name in zip(listing, names) if name == "Pooling"]
    poolings = [read_json(folder / path / CONFIG) for path in paths]
    modalities = _mapping(read_json(folder / Transformer.config_file_name), "modality_config")
    images = "image" in modalities and "text" not in modalities
    settings = read_json(folder / SETTINGS)
    default = _text(settings, "default_prompt_name")
    prompt = _text(_mapping(settings, "prompts"), default or "") or ""
    model_type = _text(config, "model_type")
    # A prompt whose tokens do not count is more than a few lines of code.
    modes = [str(each.get("pooling_mode")) for each in poolings[-1:]]
    if prompt and not all(each.get("include_prompt", True) for each in poolings):
        modes = []
    loading: Loading = "remote_code" if config.get("auto_map") else "plain"
    if own:
        loading = "own_modules"
    elif model_type in JOINED_TYPES:
        loading = "registered"
    modules = names[:-1] if normalize else names
    pooling = None if images else _POOLINGS.get(" ".join(modules + modes))
    return ModelForm(
        architecture=model_type or own,
        cross_encoder="ForSequenceClassification" in str(config.get("architectures")),
        own_module=own,
        loading=loading,
        pooling=pooling,
        prompt=prompt,
        normalize=normalize,
        images=images,
    )


def read_json(path: Path) -> dict[str, Any]:
    """Return the settings that a JSON file holds, none if there is no such file; raises UserError
    where it is not a JSON object.
    """
    return read_object(path) if path.is_file() else {}


def _mapping(settings: dict[str, Any], key: str) -> dict[str, Any]:
    found = settings.get(key)
    return found if isinstance(found, dict) else {}


def _text(settings: dict[str, Any], key: str) -> str | None:
    found = settings.get(key)
    return found if isinstance(found, str) else None
