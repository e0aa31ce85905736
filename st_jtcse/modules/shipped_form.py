"""How a saved model makes its embeddings, read from its configuration files alone."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import load_file_path

from st_jtcse.modules.loading import reading
from st_jtcse.modules.model_folders import (
    CONFIG,
    EMBEDDER,
    MODULES,
    kind_in,
    read_listing,
    read_object,
    read_settings,
)
from st_jtcse.pooling_names import SPOKEN
from st_jtcse.towers import EnsembleEncoderConfig, TwinEncoderConfig

_SUMS = (TwinEncoderConfig.model_type, EnsembleEncoderConfig.model_type)


@dataclass(frozen=True)
class ShippedForm:
    """What comes before a model's sentences, and what follows its encoder."""

    modules: tuple[str, ...]  # Class names of all modules but the first
    pooling: str | None  # Mode of the pooling; None if there is none, or several are joined
    include_prompt: bool = True  # Whether a prompt's tokens count in it
    is_sum: bool = (
        False  # Whether the encoder is a twin or an ensemble, each part of which is pooled so
    )
    prompts: dict[str, str] = field(default_factory=dict)  # Texts by name, without empty ones
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = field(default=None, compare=False)
    max_seq_length: int | None = field(default=None, compare=False)  # None: the tokenizer's

    @property
    def prompt(self) -> str:
        """The text before every sentence; empty for none."""
        return self.prompts.get(self.default_prompt_name or "", "")

    def __str__(self) -> str:
        """Say it in a phrase."""
        pooling = SPOKEN.get(self.pooling or "", "Pooling") + (
            " of each encoder, summed" if self.is_sum else ""
        )
        words = {"Pooling": pooling, "Normalize": "normalised"}
        told = [words.get(name, name) for name in self.modules]
        return ", ".join([*told, *([f"prompt {self.prompt!r}"] if self.prompt else [])])


def shipped_form(
    name: str | os.PathLike[str], *, revision: str | None = None
) -> ShippedForm | None:
    """Return the form of a model, ``embedded``, a folder or a Hub id; None for one whose tokens
    nothing makes an embedding, such as a plain encoder.

    Raises UserError where it cannot be read.
    """
    with reading(name) as place:
        listing = load_file_path(place, MODULES, revision=revision)
        if listing is None or kind_in(place, revision) != EMBEDDER:
            return None
        entries = read_listing(Path(listing).parent)
        kinds = [entry["type"].rpartition(".")[2] for entry in entries]
        places = [entry["path"] for kind, entry in zip(kinds, entries) if kind == "Pooling"]
        poolings = [Pooling.load(place, subfolder=path, revision=revision) for path in places]
        settings = read_settings(place, revision)
        found = load_file_path(place, CONFIG, revision=revision)
        config = read_object(Path(found)) if found else {}
        limits = Transformer.load_config(place, subfolder=entries[0]["path"], revision=revision)
    is_sum = config.get("model_type") in _SUMS
    mode = (
        config.get("pooling", "cls")
        if is_sum
        else poolings[0].pooling_mode
        if len(poolings) == 1
        else None
    )
    return ShippedForm(
        modules=tuple(kinds[1:]),
        pooling=mode if isinstance(mode, str) else None,
        include_prompt=all(pooling.include_prompt for pooling in poolings),
        is_sum=is_sum,
        prompts={key: text for key, text in settings.prompts.items() if text},
        default_prompt_name=settings.default_prompt_name,
        similarity_fn_name=settings.similarity_fn_name,
        max_seq_length=limits.get("max_seq_length"),
    )
