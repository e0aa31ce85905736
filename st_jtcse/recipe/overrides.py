"""Lays `--set KEY=VALUE` over a recipe's tree; a key is a dotted path of keys, list positions and stage names.

What a recipe may hold is validation's to say: an unknown key is laid like any other, and told with the rest.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from st_jtcse.errors import UserError
from st_jtcse.recipe.faults import schema_place
from st_jtcse.recipe.yaml_source import Loc, Source, Written, dotted, parse_value
from st_jtcse.wording import shown, unknown


def apply(source: Source, overrides: Iterable[str], point: Mapping[str, Any] | None = None) -> tuple[Source, list[str]]:
    """Return the tree with texts ``KEY=VALUE``, then a point of its sweep laid over, and a sentence for each refused.

    VALUE is YAML. Stages may be named, as in ``stages.joint.args.learning_rate=1e-5``, or counted from 0.
    """
    faults: list[str] = []
    swept_in = source.at(("sweep",)).folder
    for change in (*overrides, *(point or {}).items()):
        try:
            if isinstance(change, str):
                key, value = _read(change)
                # What the user types starts where the user stands.
                source = _put(source, Written(f"--set {key}", None, Path()), key, value)
            else:
                source = _put(source, Written(f"sweep.{change[0]}", None, swept_in), *change)
        except UserError as error:
            faults += error.faults
    return source, faults


def _read(override: str) -> tuple[str, Any]:
    key, equals, text = override.partition("=")
    if not key or not equals:
        raise UserError(f"--set: expected KEY=VALUE, found {shown(override)}. Write e.g. --set seed=1.")
    return key, parse_value(text, f"--set {key}")


def _put(source: Source, option: Written, key: str, value: Any) -> Source:
    """Set a value, making mappings that the file left out."""
    data = copy.deepcopy(source.data)  # A refused override must leave no half-made path behind.
    node: Any = data
    parts = key.split(".")
    loc: Loc = ()
    made: list[Loc] = []
    while True:
        part: Any = _item(option.name, node, parts, loc) if isinstance(node, list) else parts.pop(0)
        loc = (*loc, part)
        if not parts:
            break
        below = node[part] if isinstance(node, list) else node.get(part)
        if below is None:
            below = {}
            made.append(loc)
        elif isinstance(below, str) and (place := schema_place(loc)) and place.source:
            below = {"file": below}  # The short form of a source, about to get a second key.
        elif isinstance(below, str) and loc == ("model",):
            below = {"base": below}  # Likewise.
        elif not isinstance(below, (dict, list)):
            raise UserError(
                f"{option.name}: expected keys below {dotted(loc)}, found {shown(below)}. Set it as a whole."
            )
        node[part] = below
        node = below
    node[part] = value
    kept = {known: written for known, written in source.written.items() if known[: len(loc)] != loc}
    # What is told of a mapping that the option made is told of the option.
    return Source(data, {**kept, **dict.fromkeys([*made, loc], option)})


def _item(option: str, node: list[Any], parts: list[str], loc: Loc) -> int:
    """Take the name of a stage, or a position, off the parts of a key, and return the position."""
    names = [item.get("name") if isinstance(item, dict) else None for item in node] if loc == ("stages",) else []
    # A stage's name may hold dots, so the longest run of parts that is a name is taken for one.
    for size in range(len(parts), 0, -1):
        if (name := ".".join(parts[:size])) in names:
            del parts[:size]
            return names.index(name)
    part = parts.pop(0)
    if part.isascii() and part.isdigit() and int(part) < len(node):
        return int(part)
    positions = f"0 to {len(node) - 1}" if node else "none, the list is empty"
    if loc == ("stages",):
        known = [name for name in names if isinstance(name, str)]
        raise UserError(
            f"{option}: {unknown('the name or position of a stage', part, known, f'Positions: {positions}.')}"
        )
    raise UserError(f"{option}: expected a position in {dotted(loc)}, found {shown(part)}. Positions: {positions}.")
