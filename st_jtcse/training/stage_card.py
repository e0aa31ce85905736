"""What is told of a stage's model beside it: the record of its training, and its card."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from st_jtcse import bundled
from st_jtcse.atomic import to_json, write_atomically
from st_jtcse.errors import UserError
from st_jtcse.hashing import setting_files_sha256, weight_files_sha256
from st_jtcse.hub.card_results import TRAINING_RECORD
from st_jtcse.hub.cards import OTHER, CardFacts, write_card
from st_jtcse.hub.model_form import model_form
from st_jtcse.recipe import yaml_source
from st_jtcse.recipe.ability import given, used
from st_jtcse.recipe.load import LoadedRecipe, load_recipe
from st_jtcse.recipe.schema import Recipe, StageSpec
from st_jtcse.towers import TwinEncoderConfig
from st_jtcse.training.as_shipped import hub_ids

# What may differ from the bundled recipe without making it another setting.
_CIRCUMSTANCES = {
    "description",
    "method",
    "needs",
    "seed",
    "seeds",
    "output_dir",
    "cache_dir",
    "card",
    "push",
}


def family_of(stage: StageSpec, twin: bool) -> str:
    """Return the name of the card template for a stage's model; a loss with terms switched off is
    told as it is.
    """
    if stage.loss is None:
        if stage.model.members:
            return "ensemble"
        return "assembled"
    if any(ability.alters_loss for ability in given(stage)):
        return OTHER
    return stage.declaration.card(stage.loss.arguments, twin) or OTHER


def describe(
    loaded: LoadedRecipe, stage: StageSpec, model: Any, folder: Path, found: Mapping[str, Any]
) -> None:
    """Write what was found of a stage's model, and its card, into the folder that it was saved in
    and loaded from.
    """
    names = {
        "name": stage.name,
        "title": title(loaded.recipe, stage),
        "reported_as": reported_as(loaded, stage),
    }
    hashes = {
        "weights_sha256": weight_files_sha256(folder),
        "settings_sha256": setting_files_sha256(folder),
    }
    record = {**names, **found, **hashes}
    write_atomically(folder / TRAINING_RECORD, to_json(record))
    recipe, twin = loaded.recipe, model_form(folder).architecture == TwinEncoderConfig.model_type
    facts = CardFacts(
        family=family_of(stage, twin),
        title=title(recipe, stage),
        recipe=yaml_source.dump(
            _without_places(recipe.model_dump(mode="json", exclude={"cache_dir", "push"}))
        ),
        base_models=hub_ids(stage, {other.name: other for other in recipe.stages_of_run}),
        license=recipe.card.license if recipe.card else None,
        languages=recipe.card.language if recipe.card else (),
        notes=list(filter(None, (ability.card(record) for ability in used(stage)))),
    )
    write_card(model, folder, facts, record)


def title(recipe: Recipe, stage: StageSpec) -> str:
    """Return the name of a stage's model: the recipe's, with the stage's where there are
    several.
    """
    if len(recipe.stages_of_run) == 1:
        return recipe.name
    return f"{recipe.name}, {stage.name}"


def reported_as(loaded: LoadedRecipe, stage: StageSpec) -> str | None:
    """Return what the papers' tables call a stage's model; None if its setting is not the
    paper's.
    """
    path = bundled.recipes().get(loaded.recipe.name)
    if stage.reported_as is None or path is None:
        return None
    try:
        published = load_recipe(str(path)).recipe
    except UserError:
        return None
    same = loaded.recipe.model_dump(exclude=_CIRCUMSTANCES) == published.model_dump(
        exclude=_CIRCUMSTANCES
    )
    return stage.reported_as if same else None


def _without_places(value: Any) -> Any:
    """Return a recipe's tree with the names of local files and folders instead of their paths."""
    if isinstance(value, dict):
        return {key: _without_places(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_places(item) for item in value]
    if isinstance(value, str) and os.path.isabs(value):
        return os.path.basename(value)
    return value
