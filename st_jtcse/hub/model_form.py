"""What a saved model is, as far as its users have to know: how it loads and how its tokens make an embedding."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from st_jtcse.errors import UserError
from st_jtcse.modules.joining import JOINED_TYPES
from st_jtcse.modules.loading import CONFIG, own_class, read_listing

# plain: by Sentence-Transformers alone; registered: after `import st_jtcse`, or with the flag; own_modules: with both;
# remote_code: with the flag, for code that came with the model it starts from.
Loading = Literal["plain", "registered", "own_modules", "remote_code"]
Pooling = Literal["cls", "mean", "max", "first_last"]
# By the modules before the normalization and the last pooling's mode.
_POOLINGS: dict[str, Pooling] = {
    "Transformer Pooling cls": "cls",
    "Transformer Pooling mean": "mean",
    "Transformer Pooling max": "max",
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
    # How the encoder's tokens make the embedding; None where plain transformers cannot say it shortly
    pooling: Pooling | None
    normalize: bool  # whether embeddings have length 1

    def __str__(self) -> str:
        """Name the kind of model."""
        return f"{self.architecture} {'cross-encoder' if self.cross_encoder else 'encoder'}"


def model_form(folder: Path) -> ModelForm:
    """Read the form of a saved model from its configuration files; raises UserError where one is no JSON."""
    config = read_json(folder / CONFIG) or {}
    listing = read_listing(folder)
    names = [entry["type"].rpartition(".")[2] for entry in listing]
    own = own_class(folder)
    normalize = names[-1:] == ["Normalize"]
    paths = [entry["path"] for entry, name in zip(listing, names) if name == "Pooling"]
    modes = [(read_json(folder / path / CONFIG) or {}).get("pooling_mode") for path in paths]
    loading: Loading = "remote_code" if config.get("auto_map") else "plain"
    if own:
        loading = "own_modules"
    elif config.get("model_type") in JOINED_TYPES:
        loading = "registered"
    return ModelForm(
        architecture=config.get("model_type") or own,
        cross_encoder=(config.get("architectures") or [""])[0].endswith("ForSequenceClassification"),
        own_module=own,
        loading=loading,
        pooling=_POOLINGS.get(" ".join([*(names[:-1] if normalize else names), *map(str, modes[-1:])])),
        normalize=normalize,
    )


def read_json(path: Path, fault: str = "is no JSON; save the model again") -> Any:
    """Return what a JSON file holds, None if there is no such file; raises UserError where it is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError:
        raise UserError(f"{path} {fault}.") from None
