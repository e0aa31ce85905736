"""Loads a recipe: YAML, overrides, validation and cross-checks, with every fault told at once."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from st_jtcse import bundled
from st_jtcse.errors import UserError
from st_jtcse.training import extends, yaml_source
from st_jtcse.training import overrides as overriding
from st_jtcse.training.checks import check
from st_jtcse.training.faults import from_pydantic, tell
from st_jtcse.training.schema import (
    OF_ONE_STAGE,
    DataSpec,
    EvaluateSpec,
    ModelDefaults,
    ModelSpec,
    PivotSpec,
    Recipe,
    SourceSpec,
    StageSpec,
    WeightedModelSpec,
)
from st_jtcse.training.yaml_source import Loc, Source
from st_jtcse.wording import unknown

_SUFFIXES = (".yaml", ".yml")
_FOLDER_PREFIXES = ("./", "../", "~/")
# Keys that can name something local, and whether they always do; a model or dataset may also be a Hub id.
_LOCAL: dict[tuple[type[BaseModel], str], bool] = {
    (SourceSpec, "file"): True,
    (SourceSpec, "dataset"): False,
    (ModelSpec, "base"): False,
    (ModelSpec, "towers"): False,
    (ModelSpec, "cross_encoder"): False,
    (WeightedModelSpec, "model"): False,
    (PivotSpec, "forward"): False,
    (PivotSpec, "back"): False,
}


@dataclass(frozen=True)
class LoadedRecipe:
    """A valid recipe and where it came from.

    Args:
        recipe: The recipe; every local file and folder in it is absolute.
        folder: The folder its relative files started at.
        name: The file's stem, which is a bundled recipe's name.
        path: The file.
        source: The tree behind it, for messages about values that only the run can check.
    """

    recipe: Recipe
    folder: Path
    name: str
    path: Path
    source: Source


def load_recipe(reference: str, overrides: Sequence[str] = (), point: Mapping[str, Any] | None = None) -> LoadedRecipe:
    """Load and check a recipe.

    Args:
        reference: A path, or the name of a bundled recipe.
        overrides: Texts ``KEY=VALUE`` laid over the file; relative files in them start at the current folder.
        point: One point of the recipe's sweep, value by key, laid over all of that; relative files in it start at the
            recipe's folder. The recipe then has no sweep and no seeds.

    Raises:
        UserError: With every fault found, in the order of the file.
    """
    path, name = _find(reference)
    source, refused = overriding.apply(extends.load(path, name), overrides)
    if point is not None:
        source, misplaced = overriding.lay(source, {**point, "sweep": None, "seeds": None})
        refused += misplaced
    source = extends.lay_defaults(source, _usable(source.data.get("model")))
    faults = check(source.data)
    try:
        recipe = Recipe.model_validate(source.data)
    except ValidationError as error:
        raise UserError(*tell(source, [*from_pydantic(error), *faults]), *refused) from None
    if faults or refused:
        raise UserError(*tell(source, faults), *refused)
    folder = Path(os.path.abspath(path)).parent
    whole = _with_whole_data(_anchored(recipe, (), source, folder))
    whole = whole.model_copy(update={"model": None})  # Its keys stand in the stages now.
    return LoadedRecipe(whole, folder, path.stem, path, source)


def resolved_yaml(recipe: Recipe) -> str:
    """Write a recipe with every default spelt out; loading the text gives an equal recipe.

    Args:
        recipe: A loaded recipe, whose paths are absolute.
    """
    return yaml_source.dump(recipe.model_dump(mode="json"))


def stage_data(recipe: Recipe, stage: StageSpec) -> DataSpec:
    """Return what a stage trains on: its own data, else the recipe's.

    Raises:
        UserError: If there is neither, which `load_recipe` refuses.
    """
    data = stage.data if stage.data is not None else recipe.data
    if data is None:
        raise UserError(f"stage '{stage.name}': expected training data of the stage or the recipe, found none. Add it.")
    return data


def stage_args(recipe: Recipe, stage: StageSpec) -> dict[str, Any]:
    """Return a stage's training arguments: the recipe's with its own laid over them, key by key."""
    return {**recipe.args, **stage.args}


def stage_evaluate(recipe: Recipe, stage: StageSpec) -> EvaluateSpec | None:
    """Return what a stage is evaluated on: its own block, else the recipe's, if any."""
    return stage.evaluate if stage.evaluate is not None else recipe.evaluate


def _with_whole_data(recipe: Recipe) -> Recipe:
    """Lay the data blocks of stages that name no source over the recipe's."""
    if recipe.data is None:
        return recipe
    common = recipe.data.model_dump(exclude_unset=True)
    stages = [
        stage
        if stage.data is None or stage.data.sources
        else stage.model_copy(
            update={"data": DataSpec.model_validate(common | stage.data.model_dump(exclude_unset=True))}
        )
        for stage in recipe.stages
    ]
    return recipe.model_copy(update={"stages": stages})


def _usable(defaults: Any) -> set[str]:
    """Return the valid keys of a recipe's `model`; a fault in another is told once, not at every stage."""
    if not isinstance(defaults, dict):
        return set()
    wrong: set[Any] = set(OF_ONE_STAGE)
    try:
        ModelDefaults.model_validate(defaults)
    except ValidationError as error:
        wrong |= {fault.loc[0] for fault in from_pydantic(error) if fault.loc}
    return set(defaults) - wrong


def _find(reference: str) -> tuple[Path, str]:
    """Return the recipe's file and how messages call it."""
    # os.path answers no where pathlib raises: for a name too long, a folder closed to the user, an unknown ~user.
    path = Path(os.path.expanduser(reference))
    if os.path.isfile(path):
        return path, reference
    known = bundled.recipes()
    # A run's output folder often has its recipe's name, so a folder does not hide a bundled recipe.
    if reference in known:
        return known[reference], known[reference].name
    if os.path.exists(path) or path.suffix in _SUFFIXES or path.name != reference:
        return path, str(path)
    raise UserError(f"recipe: {unknown('a file or the name of a bundled recipe', reference, known)}")


def _anchored(value: Any, loc: Loc, source: Source, folder: Path) -> Any:
    """Return a block of the recipe with local files and folders made absolute."""
    if isinstance(value, list):
        return [_anchored(item, (*loc, index), source, folder) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _anchored(item, (*loc, key), source, folder) for key, item in value.items()}
    if not isinstance(value, BaseModel):
        return value
    changed = {}
    for key in type(value).model_fields:
        old, below = getattr(value, key), (*loc, key)
        always = _LOCAL.get((type(value), key))
        new = _anchored(old, below, source, folder) if always is None else _located(old, below, source, folder, always)
        if new != old:
            changed[key] = new
    return value.model_copy(update=changed)


def _located(value: Any, loc: Loc, source: Source, folder: Path, always: bool) -> Any:
    if isinstance(value, list):
        return [_located(item, (*loc, index), source, folder, always) for index, item in enumerate(value)]
    if not isinstance(value, str) or not (always or value.startswith(_FOLDER_PREFIXES)):
        return value
    override = source.override(loc)
    swept = override is not None and source.overridden[override].startswith(overriding.SWEPT)
    if override is not None and not swept:
        start = Path.cwd()  # What the user types on the command line starts where the user stands.
    else:
        origin = source.origin(("sweep",) if swept else loc)
        start = origin.folder if origin else folder
    return os.path.abspath(start / os.path.expanduser(value))
