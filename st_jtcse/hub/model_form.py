"""What a saved model is, as far as its users have to know: how it loads and how its tokens make an embedding."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from st_jtcse.errors import UserError
from st_jtcse.modules.listing import own_class, read_listing
from st_jtcse.towers import EnsembleEncoderConfig, TwinEncoderConfig

# plain: by Sentence-Transformers alone; registered: after `import st_jtcse`, or with the flag; own_modules: with both;
# remote_code: with the flag, for code that came with the model it starts from.
Loading = Literal["plain", "registered", "own_modules", "remote_code"]
Pooling = Literal["cls", "mean", "max", "first_last"]
CONFIG = "config.json"
_REGISTERED = (TwinEncoderConfig.model_type, EnsembleEncoderConfig.model_type)
_POOLINGS: dict[tuple[tuple[str, ...], str | None], Pooling] = {
    (("Transformer", "Pooling"), "cls"): "cls",
    (("Transformer", "Pooling"), "mean"): "mean",
    (("Transformer", "Pooling"), "max"): "max",
    (("Transformer", "WeightedLayerPooling", "Pooling"), "mean"): "first_last",
}


@dataclass(frozen=True)
class ModelForm:
    """How a saved model is used."""

    # The encoder's model type, or the class that stands for it; None if the folder holds no model
    architecture: str | None
    cross_encoder: bool  # whether it scores pairs instead of embedding sentences
    own_module: str | None  # the class of this package that it needs, if any
    loading: Loading  # what it needs to load
    # How the encoder's tokens make the embedding; None where plain transformers cannot say it shortly
    pooling: Pooling | None
    normalize: bool  # whether embeddings have length 1

    def __str__(self) -> str:
        """Name the kind of model."""
        return f"{self.architecture} {'cross-encoder' if self.cross_encoder else 'encoder'}"


def model_form(folder: Path) -> ModelForm:
    """Read the form of a saved model from its configuration files.

    Raises:
        UserError: A file is no JSON.
    """
    config = read_json(folder / CONFIG) or {}
    listing = read_listing(folder)
    names = [entry["type"].rpartition(".")[2] for entry in listing]
    own = own_class(folder)
    architecture = config.get("model_type") or own
    normalize = names[-1:] == ["Normalize"]
    poolings = [
        read_json(folder / entry["path"] / CONFIG) or {} for entry, name in zip(listing, names) if name == "Pooling"
    ]
    mode = poolings[-1].get("pooling_mode") if poolings else None
    return ModelForm(
        architecture=architecture,
        cross_encoder=(config.get("architectures") or [""])[0].endswith("ForSequenceClassification"),
        own_module=own,
        loading=_loading(config, own),
        pooling=_POOLINGS.get((tuple(names[:-1] if normalize else names), mode if isinstance(mode, str) else None)),
        normalize=normalize,
    )


def _loading(config: dict[str, Any], own: str | None) -> Loading:
    if own:
        return "own_modules"
    if config.get("model_type") in _REGISTERED:
        return "registered"
    return "remote_code" if config.get("auto_map") else "plain"


def read_json(path: Path, way_out: str = "save the model again") -> Any:
    """Return what a JSON file holds, None if there is no such file.

    Raises:
        UserError: It is no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError:
        raise UserError(f"{path} is no JSON; {way_out}.") from None
