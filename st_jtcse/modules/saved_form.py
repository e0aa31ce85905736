"""How a saved model makes its embeddings, read from its configuration files alone, so that what is
made of it embeds as it does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import load_file_path

from st_jtcse.errors import UserError
from st_jtcse.modules.joining import JOINED_TYPES
from st_jtcse.modules.loading import check_embeds, reading
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
from st_jtcse.towers.modeling_tower_pooling import TOWER_POOLINGS


@dataclass(frozen=True)
class SavedForm:
    """What comes before a model's sentences, and what follows its encoder."""

    # Class names of all modules but the first.
    modules: tuple[str, ...] = ("Pooling",)
    # Mode of the pooling; None if there is none, or several are joined
    pooling: str | None = "cls"
    include_prompt: bool = True  # Whether a prompt's tokens count in it
    is_sum: bool = (
        False  # Whether the encoder is a twin or an ensemble, each part of which is pooled so
    )
    # Texts by name, without empty ones.
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = field(default=None, compare=False)
    # None: the tokenizer's.
    max_seq_length: int | None = field(default=None, compare=False)

    @property
    def normalize(self) -> bool:
        """Whether it ends in a normalisation."""
        return "Normalize" in self.modules

    @property
    def of_towers(self) -> dict[str, Any]:
        """The part that the towers' model does itself, as arguments of its configuration."""
        return {name: getattr(self, name) for name in ("pooling", "normalize", "include_prompt")}

    @property
    def of_model(self) -> dict[str, Any]:
        """The part that stays with the model around them, as arguments of SentenceTransformer."""
        return {
            "prompts": dict(self.prompts),
            "default_prompt_name": self.default_prompt_name,
            "similarity_fn_name": self.similarity_fn_name,
        }

    @property
    def prompt(self) -> str:
        """The text before every sentence; empty for none."""
        return self.prompts.get(self.default_prompt_name or "", "")

    def __str__(self) -> str:
        """Say it in a phrase."""
        pooling = SPOKEN.get(self.pooling or "", "Pooling")
        if self.is_sum:
            pooling = f"{pooling} of each encoder, summed"
        words = {"Pooling": pooling, "Normalize": "normalised"}
        told = [words.get(name, name) for name in self.modules]
        if self.prompt:
            told.append(f"prompt {self.prompt!r}")
        return ", ".join(told)


def saved_form(name: str | os.PathLike[str], *, revision: str | None = None) -> SavedForm | None:
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
    is_sum = config.get("model_type") in JOINED_TYPES
    mode = poolings[0].pooling_mode if len(poolings) == 1 else None
    if is_sum:
        mode = config.get("pooling", "cls")
    return SavedForm(
        modules=tuple(kinds[1:]),
        pooling=mode if isinstance(mode, str) else None,
        include_prompt=all(pooling.include_prompt for pooling in poolings),
        is_sum=is_sum,
        prompts={key: text for key, text in settings.prompts.items() if text},
        default_prompt_name=settings.default_prompt_name,
        similarity_fn_name=settings.similarity_fn_name,
        max_seq_length=limits.get("max_seq_length"),
    )


def shared_form(
    names: Sequence[str | os.PathLike[str]], *, revision: str | None = None
) -> SavedForm:
    """Read how several saved models pool, as towers.

    The similarity is the first one's, the length the least.

    Raises:
        PoolingNeeded: One is a plain encoder, or of a kind that embeds no sentences.
        UserError: The embedding of one is not a pooled state that a tower can give, or they differ,
            which is named.
    """
    for name in names:
        check_embeds(name, revision)
    shipped = {name: saved_form(name, revision=revision) for name in names}
    forms = {name: form for name, form in shipped.items() if form}
    for name, form in forms.items():
        _check_tower(name, form)
    first = forms[names[0]]
    for name, form in forms.items():
        for key in ("pooling", "normalize", "include_prompt", "prompts", "default_prompt_name"):
            here, there = getattr(first, key), getattr(form, key)
            if here != there:
                raise UserError(
                    f"{names[0]} and {name} differ in {key}: {here!r} in the first, {there!r} in "
                    "the other; a sum needs one, so name a pooling to take both encoders alone."
                )
    lengths = [form.max_seq_length for form in forms.values() if form.max_seq_length is not None]
    return replace(first, max_seq_length=min(lengths, default=None))


def _check_tower(name: str | os.PathLike[str], form: SavedForm) -> None:
    if form.modules not in (("Pooling",), ("Pooling", "Normalize")):
        raise UserError(
            f"{name} makes its embedding by {', '.join(('Transformer', *form.modules))}, but a "
            "tower has an encoder, a pooling and a normalisation only; name a pooling to take its "
            "encoder alone."
        )
    if form.pooling not in TOWER_POOLINGS:
        raise UserError(
            f"{name} is pooled by {form.pooling!r}, which a twin cannot do; name one of "
            f"{', '.join(TOWER_POOLINGS[:-1])}."
        )
