"""Lays a recipe over the one that it `extends`, and a recipe's model defaults under the models of
its stages.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from st_jtcse import bundled
from st_jtcse.errors import UserError
from st_jtcse.recipe import yaml_source
from st_jtcse.recipe.yaml_source import WrittenTree
from st_jtcse.wording import dotted, shown, unknown

_OF_TWINS = ("cross_attention_every", "cross_residual", "random_pooler")
_OF_ENCODERS = ("pooling", "template", "training_head", "tower", "layers", "fresh")
_OF_ONE_ENCODER = ("attn_implementation", "dtype", "lora")
# By block, and by the key that says what kind of block it is: the keys that do not go with it.
FOREIGN: dict[str, dict[str, tuple[str, ...]]] = {
    "model": {
        "base": (*_OF_TWINS, "num_labels"),
        "towers": (*_OF_ENCODERS, "num_labels"),
        "members": (*_OF_TWINS, *_OF_ENCODERS, *_OF_ONE_ENCODER, "dropout", "num_labels"),
        "cross_encoder": (*_OF_TWINS, *_OF_ENCODERS, "lora"),
    },
    "data": {"train": ("labels", "score_range", "mapping", "bins"), "pairs": ("streaming",)},
}
# What says something of one model: another one has other revisions, and its code is to be trusted
# anew.
_OF_ONE_MODEL = {"revision", "trust_remote_code"}
# What a recipe never takes over: who it is, and where its results go.
_OWN = {"extends", "name", "description", "output_dir", "push"}
# Blocks that are one value: one source cannot mend another. So is whatever names a file or a data
# set.
_WHOLE = {
    ("data", "train"), ("data", "pairs"), ("evaluate", "dev"), ("evaluate", "test"),
    ("evaluate", "general"), ("sweep",),
}  # fmt: skip
_SOURCES = {"file", "dataset"}
SUFFIXES = (".yaml", ".yml")
# From a file, and what messages call it, to its tree.
Read = Callable[[Path, str | None], WrittenTree]


def load(path: Path, name: str | None = None, read: Read = yaml_source.load) -> WrittenTree:
    """Read a recipe, which messages call `name`, and lay it over the one that it extends, that over
    its own, and so on; `read` reads each of them.

    Every value of the whole tree, which has no key `extends`, knows the file and line it was
    written on. Raises UserError for a file that cannot be read, and for a recipe that extends none,
    or itself.
    """
    return _whole(read(path, name), path, {}, read)


def lay_defaults(
    source: WrittenTree, usable: Collection[str], of_training: Collection[str] = ()
) -> WrittenTree:
    """Return the tree with the recipe's `model` laid under the model of each stage.

    A key that does not go with the stage's kind of model is left out, and so are the default's
    `base` and its revision where the stage names a model itself, and the keys `of_training` where
    the stage trains nothing.
    """
    common, stages = source.keys.get("model"), source.keys.get("stages")
    if common is None or not common.keys or stages is None or not isinstance(stages.value, list):
        return source
    laid = [_with_defaults(stage, common, usable, of_training) for stage in stages.value]
    return source.having(stages=replace(stages, value=laid))


def _with_defaults(
    stage: WrittenTree, common: WrittenTree, usable: Collection[str], of_training: Collection[str]
) -> WrittenTree:
    own = stage.keys.get("model", replace(stage, value=None, own=False))
    if not isinstance(stage.value, dict) or (own.value and not own.keys):
        return stage
    kind = next((kind for kind in FOREIGN["model"] if own.plain(kind) is not None), None)
    if kind is None and common.plain("base") is None:
        return stage
    left_out = {
        *FOREIGN["model"][kind or "base"],
        *own.keys,
        *({"base", "revision"} if kind else ()),
    }
    if stage.plain("loss") is None:
        left_out.update(of_training)
    laid = {
        key: value for key, value in common.keys.items() if key in usable and key not in left_out
    }
    return stage.having(model=replace(own, value={**laid, **own.keys}))


def _whole(source: WrittenTree, path: Path, seen: Mapping[str, str], read: Read) -> WrittenTree:
    """Return a recipe laid over the one that it extends; `seen` are those that extend it,
    by path.
    """
    if "extends" not in source.keys:
        return source
    path = Path(os.path.abspath(path))
    called = path.stem if path.is_relative_to(bundled.folder("recipes")) else source.name
    seen = {**seen, os.path.realpath(path): called}
    file, name = _below(source, path)
    if os.path.realpath(file) in seen:
        circle = list(seen.values())[list(seen).index(os.path.realpath(file)) :]
        found = "itself. Name another, or remove 'extends'."
        if len(circle) > 1:
            found = f"a circle: {' -> '.join([*circle, circle[0]])}. Remove one 'extends' of it."
        raise UserError(
            f"{source.place(('extends',))}: expected another recipe to lay this over, found {found}"
        )
    base = _whole(read(file, name), file, seen, read)
    return _laid(base.without(_OWN), source, ()).without({"extends"})


def _below(source: WrittenTree, path: Path) -> tuple[Path, str]:
    """Return the file of the recipe that a recipe extends, and how messages call it."""
    place, reference = source.place(("extends",)), source.data["extends"]
    known = bundled.recipes()
    if not isinstance(reference, str):
        raise UserError(
            f"{place}: expected the name of a bundled recipe or a file, found {shown(reference)}. "
            "Name one, or remove 'extends'."
        )
    if "/" not in reference and not reference.endswith(SUFFIXES):
        if reference not in known:
            wanted = "the name of a bundled recipe or a file (.yaml)"
            raise UserError(f"{place}: {unknown(wanted, reference, known)}")
        return known[reference], known[reference].name
    relative = os.path.expanduser(reference)
    file = path.parent / relative
    if not os.path.isfile(file):
        raise UserError(
            f"{place}: expected a recipe file, found none called {shown(reference)}. Correct the "
            "path."
        )
    return file, os.path.normpath(os.path.join(os.path.dirname(source.name), relative))


def _laid(base: WrittenTree, over: WrittenTree, path: tuple[str, ...]) -> WrittenTree:
    """Return a value laid over the base's; `path` is its keys from the top, stages' positions left
    out.
    """
    if path == ("stages",) and isinstance(base.value, list) and isinstance(over.value, list):
        return replace(over, value=_stages(base.value, over.value))
    if (
        not isinstance(base.value, dict)
        or not isinstance(over.value, dict)
        or _in_block(path) in _WHOLE
        or not _SOURCES.isdisjoint(base.keys)
    ):
        return over
    kept = dict(base.without(_displaced(base, over, path)).value)
    for key, node in over.keys.items():
        inherited = kept.get(key)
        if inherited is None:
            kept[key] = node
        elif node.value is None and isinstance(inherited.value, (dict, list)) and key != "loss":
            del kept[
                key
                # Null removes what is more than one value; `loss: null` says that there is no
                # training.
            ]
        else:
            kept[key] = _laid(inherited, node, (*path, key))
    return replace(over, value=kept)


def _in_block(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a path as seen from its stage, or from the recipe: most blocks may stand in either."""
    return path[1:] if path[:1] == ("stages",) else path


def _displaced(base: WrittenTree, over: WrittenTree, path: tuple[str, ...]) -> Collection[str]:
    """Name the keys of a block that do not go with what the recipe makes of it: another loss, model
    or kind of data.
    """
    block = _in_block(path)
    if block == ("loss",):
        if over.plain("type") not in (None, base.plain("type")):
            return base.keys
        return ()
    kinds = FOREIGN.get(block[0], {}) if len(block) == 1 else {}
    kind = next((kind for kind in kinds if over.plain(kind) is not None), None)
    if kind is None:
        return ()
    of_one_model = _OF_ONE_MODEL if block == ("model",) else set()
    # A recipe's own `model` holds keys for stages of all kinds.
    if path == ("model",):
        return of_one_model
    return {*kinds, *kinds[kind], *of_one_model} - {kind}


def _stages(base: list[WrittenTree], over: list[WrittenTree]) -> list[WrittenTree]:
    """Return the base's stages, those of a known name changed or dropped in their place, new ones
    after them.
    """
    known = {
        stage.plain("name"): index
        for index, stage in enumerate(base)
        if isinstance(stage.plain("name"), str)
    }
    names, left = list(known), dict(known)
    merged: list[WrittenTree | None] = list(base)
    for index, stage in enumerate(over):
        name = stage.plain("name")
        drop = stage.plain("drop") is True and set(stage.keys) == {"name", "drop"}
        # Each is taken up once: the same name again is a new stage, after a drop, or a fault that
        # the checks tell.
        place = left.pop(name, None) if isinstance(name, str) else None
        if place is not None:
            merged[place] = None if drop else _laid(base[place], stage, ("stages",))
        elif drop:
            where = f"{stage.place(())} {dotted(('stages', index, 'name'))}"
            wanted = "a stage of the recipe that this one extends"
            raise UserError(f"{where}: {unknown(wanted, str(name), names)}")
        else:
            merged.append(stage)
    return [stage for stage in merged if stage is not None]
