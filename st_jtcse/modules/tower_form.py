"""How saved models pool, so that what is made of them embeds as they do."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import load_file_path

from st_jtcse.errors import PoolingNeeded, UserError
from st_jtcse.modules.loading import MODULES, SETTINGS, read_listing, reading
from st_jtcse.towers.modeling_tower_pooling import TOWER_POOLINGS, TowerPooling


@dataclass(frozen=True)
class TowerForm:
    """What turns the rows of an encoder's tokens into an embedding, and what goes before a sentence."""

    pooling: TowerPooling = "cls"
    normalize: bool = False
    include_prompt: bool = True
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None

    @property
    def of_towers(self) -> dict[str, Any]:
        """The part that the towers' model does itself, as arguments of its configuration."""
        return {"pooling": self.pooling, "normalize": self.normalize, "include_prompt": self.include_prompt}

    @property
    def of_model(self) -> dict[str, Any]:
        """The part that stays with the model around them, as arguments of SentenceTransformer."""
        return {"prompts": dict(self.prompts), "default_prompt_name": self.default_prompt_name}


def shipped_form(name: str | os.PathLike[str], *, revision: str | None = None) -> TowerForm | None:
    """Read how a saved model pools; None for a plain encoder, which does not say it.

    Raises:
        UserError: Its embedding is no pooled state of its encoder, or not one that a tower can give.
    """
    with reading(name) as place:
        listing = load_file_path(place, MODULES, revision=revision)
    entries = read_listing(Path(listing).parent) if listing else []
    if not entries:
        return None
    kinds = [entry["type"].rpartition(".")[2] for entry in entries]
    normalize = kinds[-1] == "Normalize"
    if kinds[: len(kinds) - normalize] != ["Transformer", "Pooling"]:
        raise UserError(
            f"{name} makes its embedding by {', '.join(kinds)}, but a tower has an encoder, a pooling and a "
            "normalisation only; name a pooling to take its encoder alone."
        )
    with reading(name) as place:
        pooling = Pooling.load(place, subfolder=entries[1]["path"], revision=revision)
        settings = load_file_path(place, SETTINGS, revision=revision)
        told = json.loads(Path(settings).read_text(encoding="utf-8")) if settings else {}
    if pooling.pooling_mode not in TOWER_POOLINGS:
        raise UserError(
            f"{name} is pooled by {pooling.pooling_mode!r}, of which a sum of towers makes nothing that each of them "
            f"gives; name one of {', '.join(TOWER_POOLINGS[:-1])}."
        )
    prompts = {key: text for key, text in (told.get("prompts") or {}).items() if text}
    return TowerForm(pooling.pooling_mode, normalize, pooling.include_prompt, prompts, told.get("default_prompt_name"))


def shared_form(names: Sequence[str | os.PathLike[str]], *, revision: str | None = None) -> TowerForm | None:
    """Read how several saved models pool; None where all are plain encoders.

    Raises:
        PoolingNeeded: Some of them are.
        UserError: They differ, which is named.
    """
    forms = {name: shipped_form(name, revision=revision) for name in names}
    if not any(forms.values()):
        return None
    if plain := [name for name, form in forms.items() if form is None]:
        raise PoolingNeeded(
            f"{plain[0]} is a plain encoder, and nothing says how its tokens make an embedding",
            "name its pooling, e.g. pooling='cls'",
        )
    first = forms[names[0]]
    for name, form in forms.items():
        for key in TowerForm.__dataclass_fields__:
            here, there = (getattr(each, key) for each in (first, form))
            if here != there:
                raise UserError(
                    f"{names[0]} and {name} differ in {key}: {here!r} in the first, {there!r} in the other; a sum "
                    "needs one, so name a pooling to take both encoders alone."
                )
    return first
