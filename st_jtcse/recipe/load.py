"""Loads a recipe: YAML, overrides, validation and resolution, then the checks that need the
libraries it names; each of the two tells all its faults at once.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os.path
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from st_jtcse import bundled
from st_jtcse.corpus_folder import is_wildcard
from st_jtcse.errors import UserError
from st_jtcse.recipe import consistency, extends, yaml_source
from st_jtcse.recipe.ability import Need, abilities
from st_jtcse.recipe.choices import BY_TEXT, left_out_of, purpose_of
from st_jtcse.recipe.consistency import PlacedStage
from st_jtcse.recipe.data_blocks import DataSpec, DevSpec, EvaluateSpec
from st_jtcse.recipe.faults import Fault, SchemaPlace, from_pydantic, schema_place, tell
from st_jtcse.recipe.overrides import apply
from st_jtcse.recipe.schema import OF_ONE_STAGE, ModelDefaults, Recipe, StageSpec
from st_jtcse.recipe.yaml_source import Loc, WrittenTree
from st_jtcse.unimported import Unread, reading
from st_jtcse.wording import nearest, unknown

_FOLDER_PREFIXES = ("./", "../", "~/")
# Keys of blocks that can name something local, and whether they always do; a model or dataset may
# also be a Hub id.
_MAY_BE_LOCAL = ("dataset", "base", "towers", "cross_encoder", "model", "forward", "back")
_LOCAL = {
    **dict.fromkeys(("file", "corpus", "queries"), True),
    **dict.fromkeys(_MAY_BE_LOCAL, False),
}
_NO_SOURCE = "expected exactly one of 'train' and 'pairs', found neither. Give one of them."
BlockType = TypeVar("BlockType", bound=BaseModel)


@dataclass(frozen=True)
class LoadedRecipe:
    """A valid recipe and where it came from."""

    # The recipe as written; every local file and folder in it is absolute.
    recipe: Recipe
    # All its stages, each with the data, arguments and evaluation that it has of the recipe
    placed: tuple[PlacedStage, ...]
    path: Path
    source: WrittenTree  # The tree behind it

    @cached_property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages of the run."""
        left_out = self.recipe.left_out
        return tuple(stage.spec for stage in self.placed if stage.spec.name not in left_out)

    @property
    def cache_dir(self) -> Path | None:
        """Folder of what is computed once and shared by runs; None is the default."""
        if self.recipe.cache_dir:
            return Path(self.recipe.cache_dir).absolute()
        return None

    @property
    def keys(self) -> dict[str, str]:
        """By stage, a hash of all that its result follows from but the seed: two stages with one
        key come out alike.
        """
        keys: dict[str, str] = {}
        for stage in self.stages:
            told = json.dumps(
                [stage.model_dump(mode="json"), [keys[name] for name in stage.earlier]]
            )
            keys[stage.name] = hashlib.sha256(told.encode()).hexdigest()
        return keys

    def choose(self, names: Sequence[str]) -> list[str]:
        """Return the stages to run, in the recipe's order; no names mean all, and one that is no
        stage a UserError.
        """
        known = [stage.name for stage in self.stages]
        for name in names:
            if name not in known:
                near = nearest(name, known)
                hint = f" Did you mean {near!r}?" if near else ""
                raise UserError(
                    f"--stage: {name!r} is not a stage of the recipe ({', '.join(known)}).{hint}"
                )
        return [name for name in known if not names or name in names]


def load_recipe(
    reference: str, overrides: Sequence[str] = (), point: Mapping[str, Any] | None = None
) -> LoadedRecipe:
    """Load, resolve and check a recipe, as :func:`read_recipe` and :func:`check_recipe` do."""
    loaded = read_recipe(reference, overrides, point)
    check_recipe(loaded)
    return loaded


def read_recipe(
    reference: str, overrides: Sequence[str] = (), point: Mapping[str, Any] | None = None
) -> LoadedRecipe:
    """Load and resolve a recipe, by path or bundled name, without the libraries that it names.

    Overrides are texts ``KEY=VALUE``, and relative files in them start at the current folder. A
    point of the recipe's sweep, value by key, is laid over all of that; relative files in it start
    at the recipe's folder, and the recipe then has no sweep and no seeds. A UserError tells every
    fault of the keys, their types, and the names of stages, in the file's order.
    """
    path, name = _find(reference)
    swept = None if point is None else {**point, "sweep": None, "seeds": None}
    source, refused = apply(extends.load(path, name), overrides, swept)
    if isinstance(source.plain("model"), str):
        base = source.keys["model"]
        source = source.having(model=replace(base, value={"base": base}))
    if isinstance(common := source.data.get("model"), dict):
        # A fault in one of its keys is told once, not at every stage.
        usable = _readable(
            ModelDefaults, {key: common[key] for key in common if key not in OF_ONE_STAGE}
        )
        given = usable.model_fields_set if usable else ()
        source = extends.lay_defaults(source, given, _of_training())
    if source.plain("purpose") == BY_TEXT:
        source = source.having(purpose=_purpose(source))
    try:
        recipe = Recipe.model_validate(source.data)
    except ValidationError as error:
        # So that no fault hides another, what can be read is checked all the same.
        _, faults = _placed(source.data, _Common.readable(source.data))
        raise UserError(*tell(source, [*from_pydantic(error), *faults]), *refused) from None
    # The keys of the recipe's own model stand in the stages now.
    whole = _anchored(recipe, (), source).model_copy(
        update={"model": None, "sweep": _anchored_sweep(recipe, source.at(("sweep",)).folder)}
    )
    common = _Common(whole.stages, whole.data, whole.args, whole.evaluate)
    placed, faults = _placed(source.data, common)
    if faults or refused:
        raise UserError(*tell(source, faults), *refused)
    return LoadedRecipe(whole, tuple(placed), path, source)


def check_recipe(loaded: LoadedRecipe) -> None:
    """Check a recipe that was read against the libraries that it names, and its blocks against one
    another; a UserError tells every fault.
    """
    if faults := _faults(loaded):
        raise UserError(*tell(loaded.source, faults))


def _faults(loaded: LoadedRecipe) -> list[Fault]:
    """Return what is wrong between a recipe and the libraries that it names, which are imported
    where their source does not tell.
    """
    if "sentence_transformers" not in sys.modules:
        with suppress(Unread), reading():
            return _found(loaded)
    return _found(loaded)


def _found(loaded: LoadedRecipe) -> list[Fault]:
    faults = list(consistency.arguments(loaded.source.data.get("args"), ("args",)))
    for stage in loaded.placed:
        faults += consistency.stage_faults(stage)
    return faults


def missing_paths(block: Any, key: str = "") -> Iterator[str]:
    """Yield the local files and folders that a part of a loaded recipe, the value of a key, names
    and that are not there.
    """
    if isinstance(block, str):
        is_there = os.path.exists(block) or is_wildcard(Path(block))
        if key in _LOCAL and os.path.isabs(block) and not is_there:
            yield block
    elif isinstance(block, list):
        for item in block:
            yield from missing_paths(item, key)
    elif isinstance(block, dict):
        yield from missing_paths(list(block.values()))
    elif isinstance(block, BaseModel):
        for field in type(block).model_fields:
            yield from missing_paths(getattr(block, field), field)


def _purpose(source: WrittenTree) -> WrittenTree:
    """Return the purpose that the recipe's text decides."""
    data = source.data.get("data")
    train = data.get("train") if isinstance(data, dict) else None
    folder = source.at(("data", "train")).folder
    return replace(source.keys["purpose"], value=purpose_of(train, folder))


def resolved_yaml(recipe: Recipe) -> str:
    """Write a loaded recipe with every default spelt out; loading the text gives an equal
    recipe.
    """
    return yaml_source.dump(recipe.model_dump(mode="json"))


def resolved(
    stage: StageSpec,
    data: DataSpec | None,
    args: Mapping[str, Any],
    evaluate: EvaluateSpec | None,
    left_out: Collection[str] = (),
) -> StageSpec:
    """Return a stage that carries all it has of the recipe's data, arguments and evaluation.

    Data without a source are laid over the recipe's key by key, as arguments are. Abilities add
    what follows from the rest, and do without the stages that the run leaves out, where they can.
    Raises ValidationError if its data do not go together.
    """
    own = stage.data
    if own is not None and data is not None and not own.sources:
        own = DataSpec.model_validate(
            data.model_dump(exclude_unset=True) | own.model_dump(exclude_unset=True)
        )
    whole = stage.model_copy(
        update={
            "data": data if own is None else own,
            "args": {**args, **stage.args},
            "evaluate": evaluate if stage.evaluate is None else stage.evaluate,
        }
    )
    for ability in abilities():
        whole = ability.resolve(ability.leave_out(whole, left_out))
    return whole


def _of_training() -> set[str]:
    """Return the keys of a model that say how it is trained."""
    found: set[str] = set()
    for ability in abilities():
        if ability.block == "model" and Need.LOSS in ability.needing:
            found |= ability.fields.keys()
    return found


class _Common(NamedTuple):
    """A recipe's stages, and what they have in common; None for what cannot be read."""

    stages: Sequence[StageSpec | None]
    data: DataSpec | None
    args: dict[str, Any]
    evaluate: EvaluateSpec | None

    @classmethod
    def readable(cls, tree: dict[str, Any]) -> _Common:
        """Return what can be read of a recipe with faults."""
        args = tree.get("args")
        return cls(
            [_readable(StageSpec, block) for block in _written(tree)],
            _readable(DataSpec, tree.get("data")),
            args if isinstance(args, dict) else {},
            _readable(EvaluateSpec, tree.get("evaluate")),
        )


def _written(tree: dict[str, Any]) -> list[Any]:
    """Return a recipe's stages as they are written."""
    if isinstance(tree.get("stages"), list):
        return tree["stages"]
    return []


def _placed(tree: dict[str, Any], common: _Common) -> tuple[list[PlacedStage], list[Fault]]:
    """Return a recipe's stages, resolved, and what is wrong with their names, their references and
    the data that they have of the recipe.
    """
    written = _written(tree)
    placed: list[PlacedStage] = []
    faults = list(consistency.names(written))
    if common.data is not None and not common.data.sources:
        faults.append(Fault(("data",), _NO_SOURCE))
    names = [str(block.get("name")) if isinstance(block, dict) else "" for block in written]
    faults += consistency.choices(common.stages, tree)
    left_out = left_out_of(filter(None, common.stages), tree)
    for index, (block, stage) in enumerate(zip(written, common.stages)):
        if stage is None:
            continue
        others = () if stage.name in left_out else left_out
        place = ("stages", index, "data")
        if stage.data is not None and not stage.data.sources and tree.get("data") is None:
            faults.append(Fault(place, _NO_SOURCE))
        try:
            whole = resolved(stage, common.data, common.args, common.evaluate, others)
        except ValidationError as error:
            for fault in from_pydantic(error):
                faults.append(Fault(place, f"{fault.text} The rest is the recipe's 'data'."))
            continue
        placed.append(PlacedStage(index, whole, block))
        faults += consistency.references(placed[-1], names, others)
    push = tree.get("push")
    repos = push.get("repos") if isinstance(push, dict) else None
    in_run = [name for name in names if name not in left_out]
    return placed, [*faults, *consistency.push(repos, in_run)]


def _readable(kind: type[BlockType], tree: Any) -> BlockType | None:
    """Return a block without its faulty keys, which validation tells; None if the others do not
    make one.
    """
    left = copy.deepcopy(tree)
    while isinstance(left, dict):
        try:
            return kind.model_validate(left)
        except ValidationError as error:
            if not any(
                [_drop(left, details["loc"]) for details in error.errors(include_url=False)]
            ):
                return None
    return None


def _drop(tree: Any, loc: Loc) -> bool:
    """Delete what is at a location, or at the nearest above it that the tree has; False if it has
    none.
    """
    found = None
    for part in loc:
        if isinstance(part, int) and not isinstance(tree, list):
            continue  # One item that stands for a list of one.
        held = dict(enumerate(tree)) if isinstance(tree, list) else tree
        if not isinstance(held, dict) or part not in held:
            break
        found, tree = (tree, part), held[part]
    if found is not None:
        del found[0][found[1]]
    return found is not None


def _find(reference: str) -> tuple[Path, str]:
    """Return the recipe's file and how messages call it."""
    # os.path answers no where pathlib raises: for a name too long, a folder closed to the user, an
    # unknown ~user.
    path = Path(os.path.expanduser(reference))
    if os.path.isfile(path):
        return path, reference
    known = bundled.recipes()
    # A run's output folder often has its recipe's name, so a folder does not hide a bundled recipe.
    if reference in known:
        return known[reference], known[reference].name
    if os.path.exists(path) or path.suffix in extends.SUFFIXES or path.name != reference:
        return path, str(path)
    raise UserError(
        f"recipe: {unknown('a file or the name of a bundled recipe', reference, known)}"
    )


def _anchored(value: Any, loc: Loc, source: WrittenTree, always: bool | None = None) -> Any:
    """Return a part of the recipe with local files and folders made absolute; `always` is as in the
    table above.
    """
    if isinstance(value, list):
        return [_anchored(item, (*loc, index), source, always) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _anchored(item, (*loc, key), source) for key, item in value.items()}
    if isinstance(value, BaseModel):
        held = {key: getattr(value, key) for key in type(value).model_fields}
        new = {
            key: _anchored(old, (*loc, key), source, _LOCAL.get(key)) for key, old in held.items()
        }
        # What stays as it is does not count as given.
        return value.model_copy(update={key: new[key] for key in held if new[key] != held[key]})
    return _absolute(value, source.at(loc).folder, always)


def _anchored_sweep(recipe: Recipe, folder: Path) -> list[dict[str, list[Any]]] | None:
    """Return a recipe's sweep with local files and folders, which start at a folder, absolute."""
    if recipe.sweep is None:
        return None
    names = [stage.name for stage in recipe.stages]
    blocks: list[dict[str, list[Any]]] = []
    for block in recipe.sweep:
        blocks.append({})
        for key, values in block.items():
            place = _swept_place(key, names)
            blocks[-1][key] = [_anchored_value(value, place, key, folder) for value in values]
    return blocks


def _swept_place(key: str, names: Sequence[str]) -> SchemaPlace | None:
    """Return the schema's place that a key of a sweep, written as for --set, leads to."""
    for name in names:
        # All stages have one schema, and their names may hold dots.
        if key.startswith(f"stages.{name}."):
            key = f"stages.0{key.removeprefix(f'stages.{name}')}"
            break
    return schema_place(tuple(int(part) if part.isdecimal() else part for part in key.split(".")))


def _anchored_value(value: Any, place: SchemaPlace | None, key: str, folder: Path) -> Any:
    """Return plain data with local files and folders made absolute."""
    if isinstance(value, dict):
        return {
            name: _anchored_value(item, place.step(name) if place else None, name, folder)
            for name, item in value.items()
        }
    if isinstance(value, list):
        below = place.step(0) if place else None
        return [_anchored_value(item, below, key, folder) for item in value]
    kind = place.source if place else None
    if kind is None:
        return _absolute(value, folder, _LOCAL.get(key.rpartition(".")[2]))
    is_file = kind is not DevSpec or value not in DevSpec.can_make()
    if is_file:
        return _absolute(value, folder, True)
    return value


def _absolute(value: Any, folder: Path, always: bool | None) -> Any:
    """Return what names something local as an absolute path; `always` is as in the table above."""
    if not isinstance(value, str) or always is None:
        return value
    if always or value.startswith(_FOLDER_PREFIXES):
        return os.path.abspath(folder / os.path.expanduser(value))
    return value
