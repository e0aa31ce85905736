"""Lays `--set KEY=VALUE` over a recipe's tree; a key is a dotted path of keys, list positions and stage names.

What a recipe may hold is validation's to say: an unknown key is laid like any other, and told with the rest.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from st_jtcse.errors import UserError
from st_jtcse.recipe.schema_places import takes_source
from st_jtcse.recipe.yaml_source import Loc, Source, dotted, parse_value
from st_jtcse.wording import shown, unknown

# How messages call a value that the recipe's sweep put in place.
SWEPT = "sweep."


def apply(source: Source, overrides: Sequence[str]) -> tuple[Source, list[str]]:
    """Return the tree with the overrides in place, and a sentence for each override that was refused."""
    faults: list[str] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        option = f"--set {key}"
        try:
            if not key or not equals:
                raise UserError(f"--set: expected KEY=VALUE, found {shown(override)}. Write e.g. --set seed=1.")
            source = _put(source, option, key, parse_value(text, option))
        except UserError as error:
            faults.extend(error.faults)
    return source, faults


def lay(source: Source, values: Mapping[str, Any]) -> tuple[Source, list[str]]:
    """Return the tree with one point of its sweep in place, and a sentence for each key that was refused."""
    faults: list[str] = []
    for key, value in values.items():
        try:
            source = _put(source, f"{SWEPT}{key}", key, value)
        except UserError as error:
            faults.extend(error.faults)
    return source, faults


def _put(source: Source, option: str, key: str, value: Any) -> Source:
    """Set a value, making mappings that the file left out."""
    data = copy.deepcopy(source.data)  # A refused override must leave no half-made path behind.
    node: Any = data
    parts = key.split(".")
    loc: Loc = ()
    made: list[Loc] = []
    while True:
        part: Any = _item(option, node, parts, loc) if isinstance(node, list) else parts.pop(0)
        loc = (*loc, part)
        if not parts:
            break
        below = node[part] if isinstance(node, list) else node.get(part)
        if below is None:
            below = {}
            made.append(loc)
        elif isinstance(below, str) and takes_source(loc):
            below = {"file": below}  # The short form of a source, about to get a second key.
        elif not isinstance(below, (dict, list)):
            raise UserError(f"{option}: expected keys below {dotted(loc)}, found {shown(below)}. Set it as a whole.")
        node[part] = below
        node = below
    node[part] = value
    kept = {known: words for known, words in source.overridden.items() if known[: len(loc)] != loc}
    # What is told of a mapping that the option made is told of the option.
    return replace(source, data=data, overridden={**kept, **dict.fromkeys([*made, loc], option)})


def _item(option: str, node: list[Any], parts: list[str], loc: Loc) -> int:
    """Take the name of a stage, or a position, off the parts of a key, and return the position."""
    names = [item.get("name") if isinstance(item, dict) else None for item in node] if loc == ("stages",) else []
    # A stage's name may hold dots, so the longest run of parts that is a name is taken for one.
    for size in range(len(parts), 0, -1):
        if ".".join(parts[:size]) in names:
            index = names.index(".".join(parts[:size]))
            del parts[:size]
            return index
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
