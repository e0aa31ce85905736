"""Lays a recipe over the one that it `extends`, and a recipe's model defaults under the models of its stages."""

from __future__ import annotations

import os.path
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from st_jtcse import bundled
from st_jtcse.errors import UserError
from st_jtcse.recipe import yaml_source
from st_jtcse.recipe.yaml_source import Loc, Source, Written, dotted
from st_jtcse.wording import shown, unknown

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
# What says something of one model: another one has other revisions, and its code is to be trusted anew.
_OF_ONE_MODEL = {"revision", "trust_remote_code"}
# What a recipe never takes over: who it is, and where its results go.
_OWN = {"extends", "name", "description", "output_dir", "push"}
# Blocks that are one value, wherever they stand: one source cannot mend another.
_WHOLE = {
    ("data", "train"), ("data", "pairs"), ("evaluate", "dev"), ("evaluate", "test"), ("evaluate", "general"),
    ("neighbours", "anchors"), ("pair_scores",), ("sweep",),
}  # fmt: skip
SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class _Node:
    """A value and where it was written; mappings and lists hold nodes."""

    value: Any
    written: Written

    @property
    def keys(self) -> dict[str, _Node]:
        """What the value holds as a mapping; nothing if it is none."""
        return self.value if isinstance(self.value, dict) else {}

    def plain(self, key: str) -> Any:
        """Return the value of a key; None if there is no such key."""
        return self.keys[key].value if key in self.keys else None

    def without(self, dropped: Collection[str]) -> _Node:
        """Return the mapping without some of its keys."""
        return replace(self, value={key: node for key, node in self.keys.items() if key not in dropped})


def load(path: Path, name: str | None = None) -> Source:
    """Read a recipe, which messages call `name`, and lay it over the one that it extends, that over its own, and so on.

    Every value of the whole tree, which has no key `extends`, knows the file and line it was written on. Raises
    UserError for a file that cannot be read, and for a recipe that extends none, or itself.
    """
    source = yaml_source.load(path, name)
    if "extends" not in source.data:
        return source
    chain = list(_chain(source, path))
    tree = chain[-1]
    for over in reversed(chain[:-1]):
        tree = _laid(tree.without(_OWN), over, ())
    written: dict[Loc, Written] = {}
    return Source(_spread(tree.without({"extends"}), (), written), written)


def lay_defaults(source: Source, usable: Collection[str]) -> Source:
    """Return the tree with the recipe's `model` laid under the model of each stage.

    A key that does not go with the stage's kind of model is left out, and so are the default's `base` and its revision
    where the stage names a model itself, and `lora` where the stage trains nothing.
    """
    common, stages = source.data.get("model"), source.data.get("stages")
    if not isinstance(common, dict) or not isinstance(stages, list):
        return source
    laid, written = list(stages), dict(source.written)
    for index, stage in enumerate(stages):
        own = (stage.get("model") or {}) if isinstance(stage, dict) else None
        if not isinstance(own, dict):
            continue
        kind = next((kind for kind in FOREIGN["model"] if own.get(kind) is not None), None)
        if kind is None and common.get("base") is None:
            continue
        left_out = {*FOREIGN["model"][kind or "base"], *own, *({"base", "revision"} if kind else ())}
        left_out |= {"lora"} if stage.get("loss") is None else set()
        keys = [key for key in common if key in usable and key not in left_out]
        written |= {("stages", index, "model", key): source.at(("model", key)) for key in keys}
        laid[index] = {**stage, "model": {**{key: common[key] for key in keys}, **own}}
    return Source({**source.data, "stages": laid}, written)


def _chain(source: Source, path: Path) -> Iterator[_Node]:
    """Yield the tree of a recipe, of the one it extends, and so on."""
    seen: dict[str, str] = {}
    while True:
        path = Path(os.path.abspath(path))
        seen[os.path.realpath(path)] = path.stem if path == bundled.recipes().get(path.stem) else source.name
        yield _grown(source, source.data, ())
        if "extends" not in source.data:
            return
        path, name = _below(source, path)
        if os.path.realpath(path) in seen:
            names = list(seen.values())
            circle = names[list(seen).index(os.path.realpath(path)) :]
            found = "itself. Name another, or remove 'extends'."
            if len(circle) > 1:
                found = f"a circle: {' -> '.join([*circle, circle[0]])}. Remove one 'extends' of it."
            raise UserError(f"{source.place(('extends',))}: expected another recipe to lay this over, found {found}")
        source = yaml_source.load(path, name)


def _below(source: Source, path: Path) -> tuple[Path, str]:
    """Return the file of the recipe that a recipe extends, and how messages call it."""
    place, reference = source.place(("extends",)), source.data["extends"]
    known = bundled.recipes()
    if not isinstance(reference, str):
        raise UserError(
            f"{place}: expected the name of a bundled recipe or a file, found {shown(reference)}. Name one, or remove "
            "'extends'."
        )
    if "/" not in reference and not reference.endswith(SUFFIXES):
        if reference not in known:
            raise UserError(f"{place}: {unknown('the name of a bundled recipe or a file (.yaml)', reference, known)}")
        return known[reference], known[reference].name
    relative = os.path.expanduser(reference)
    file = path.parent / relative
    if not os.path.isfile(file):
        raise UserError(f"{place}: expected a recipe file, found none called {shown(reference)}. Correct the path.")
    return file, os.path.normpath(os.path.join(os.path.dirname(source.name), relative))


def _grown(source: Source, value: Any, loc: Loc) -> _Node:
    """Return a part of a file's tree as nodes."""
    held = value
    if isinstance(value, dict):
        held = {key: _grown(source, item, (*loc, key)) for key, item in value.items()}
    elif isinstance(value, list):
        held = [_grown(source, item, (*loc, index)) for index, item in enumerate(value)]
    return _Node(held, source.written[loc])


def _spread(node: _Node, loc: Loc, written: dict[Loc, Written]) -> Any:
    """Return a node's plain value, and note where each part of it was written."""
    written[loc] = node.written
    if isinstance(node.value, dict):
        return {key: _spread(item, (*loc, key), written) for key, item in node.value.items()}
    if isinstance(node.value, list):
        return [_spread(item, (*loc, index), written) for index, item in enumerate(node.value)]
    return node.value


def _laid(base: _Node, over: _Node, path: tuple[str, ...]) -> _Node:
    """Return a value laid over the base's; `path` is its keys from the top, stages' positions left out."""
    if path == ("stages",) and isinstance(base.value, list) and isinstance(over.value, list):
        return replace(over, value=_stages(base.value, over.value))
    if not isinstance(base.value, dict) or not isinstance(over.value, dict) or _in_block(path) in _WHOLE:
        return over
    kept = dict(base.without(_displaced(base, over, path)).value)
    for key, node in over.keys.items():
        inherited = kept.get(key)
        if inherited is None:
            kept[key] = node
        elif node.value is None and isinstance(inherited.value, (dict, list)) and key != "loss":
            del kept[key]  # Null removes what is more than one value; `loss: null` says that there is no training.
        else:
            kept[key] = _laid(inherited, node, (*path, key))
    return replace(over, value=kept)


def _in_block(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a path as seen from its stage, or from the recipe: most blocks may stand in either."""
    return path[1:] if path[:1] == ("stages",) else path


def _displaced(base: _Node, over: _Node, path: tuple[str, ...]) -> Collection[str]:
    """Name the keys of a block that do not go with what the recipe makes of it: another loss, model or kind of data."""
    block = _in_block(path)
    if block == ("loss",):
        return base.keys if over.plain("type") not in (None, base.plain("type")) else ()
    kinds = FOREIGN.get(block[0], {}) if len(block) == 1 else {}
    kind = next((kind for kind in kinds if over.plain(kind) is not None), None)
    if kind is None:
        return ()
    of_one_model = _OF_ONE_MODEL if block == ("model",) else set()
    # A recipe's own `model` holds keys for stages of all kinds.
    return of_one_model if path == ("model",) else {*kinds, *kinds[kind], *of_one_model} - {kind}


def _stages(base: list[_Node], over: list[_Node]) -> list[_Node]:
    """Return the base's stages, those of a known name changed or dropped in their place, new ones after them."""
    known = {stage.plain("name"): index for index, stage in enumerate(base) if isinstance(stage.plain("name"), str)}
    names, left = list(known), dict(known)
    merged: list[_Node | None] = list(base)
    for index, stage in enumerate(over):
        name = stage.plain("name")
        drop = stage.plain("drop") is True and set(stage.keys) == {"name", "drop"}
        # Each is taken up once: the same name again is a new stage, after a drop, or a fault that the checks tell.
        place = left.pop(name, None) if isinstance(name, str) else None
        if place is not None:
            merged[place] = None if drop else _laid(base[place], stage, ("stages",))
        elif drop:
            where = f"{stage.written.name}:{stage.written.line} {dotted(('stages', index, 'name'))}"
            raise UserError(f"{where}: {unknown('a stage of the recipe that this one extends', str(name), names)}")
        else:
            merged.append(stage)
    return [stage for stage in merged if stage is not None]
