"""How a saved model makes its embeddings, read from its configuration files alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import load_file_path

from st_jtcse.modules.loading import MODULES, SETTINGS, read_listing, reading
from st_jtcse.pooling_names import SPOKEN


@dataclass(frozen=True)
class ShippedForm:
    """What follows a model's encoder, and what comes before its texts."""

    modules: tuple[str, ...]  # Class names of the modules after the encoder
    pooling: str | None  # Mode of its pooling; None if it has none, or joins several
    prompts: dict[str, str] = field(default_factory=dict)  # Texts by name, without empty ones
    default_prompt_name: str | None = None

    @property
    def prompt(self) -> str:
        """The text before every sentence; empty for none."""
        return self.prompts.get(self.default_prompt_name or "", "")

    def __str__(self) -> str:
        """Say it in a phrase."""
        words = {"Pooling": SPOKEN.get(self.pooling or "", "Pooling"), "Normalize": "normalised"}
        told = [words.get(name, name) for name in self.modules]
        return ", ".join([*told, *([f"prompt {self.prompt!r}"] if self.prompt else [])])


def shipped_form(name: str, *, revision: str | None = None) -> ShippedForm | None:
    """Return the form of a model, ``embedded``, a folder or a Hub id; None for a plain encoder.

    Raises UserError where it cannot be read.
    """
    with reading(name) as place:
        listing = load_file_path(place, MODULES, revision=revision)
        if listing is None:
            return None
        entries = read_listing(Path(listing).parent)
        kinds = [entry["type"].rpartition(".")[2] for entry in entries]
        poolings = [entry["path"] for kind, entry in zip(kinds, entries) if kind == "Pooling"]
        modes = [Pooling.load(place, subfolder=path, revision=revision).pooling_mode for path in poolings]
        settings = load_file_path(place, SETTINGS, revision=revision)
        told: dict[str, Any] = json.loads(Path(settings).read_text(encoding="utf-8")) if settings else {}
    return ShippedForm(
        modules=tuple(kinds[1:]),
        pooling=modes[0] if len(modes) == 1 and isinstance(modes[0], str) else None,
        prompts={key: text for key, text in (told.get("prompts") or {}).items() if text},
        default_prompt_name=told.get("default_prompt_name"),
    )
