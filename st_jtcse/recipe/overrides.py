"""Lays `--set KEY=VALUE` over a recipe's tree; a key is a dotted path of keys, list positions and
stage names.

What a recipe may hold is validation's to say: an unknown key is laid like any other, and told with
the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from st_jtcse.errors import UserError
from st_jtcse.recipe.faults import schema_place
from st_jtcse.recipe.yaml_source import Loc, Written, WrittenTree, grown, parse_value
from st_jtcse.wording import dotted, shown, unknown


def apply(
    source: WrittenTree, overrides: Iterable[str], point: Mapping[str, Any] | None = None
) -> tuple[WrittenTree, list[str]]:
    """Return the tree with texts ``KEY=VALUE``, then a point of its sweep laid over, and a sentence
    for each refused.

    VALUE is YAML. Stages may be named, as in ``stages.joint.args.learning_rate=1e-5``, or counted
    from 0.
    """
    faults: list[str] = []
    swept_in = source.at(("sweep",)).folder
    for change in (*overrides, *(point or {}).items()):
        try:
            if isinstance(change, str):
                key, value = _read(change)
                # What the user types starts where the user stands.
                written = Written(f"--set {key}", None, Path())
            else:
                key, value = change
                written = Written(f"sweep.{key}", None, swept_in)
            source = _put(source, key.split("."), grown(value, written), ())
        except UserError as error:
            faults += error.faults
    return source, faults


def _read(override: str) -> tuple[str, Any]:
    key, equals, text = override.partition("=")
    if not key or not equals:
        raise UserError(
            f"--set: expected KEY=VALUE, found {shown(override)}. Write e.g. --set seed=1."
        )
    return key, parse_value(text, f"--set {key}")


def _put(above: WrittenTree, parts: list[str], new: WrittenTree, loc: Loc) -> WrittenTree:
    """Return a tree in which the last of a key's parts is new, making mappings that the file left
    out.
    """
    is_list = isinstance(above.value, list)
    part: Any = _item(above, parts, new.name, loc) if is_list else parts.pop(0)
    loc = (*loc, part)
    if parts:
        below = above.value[part] if is_list else above.keys.get(part)
        if below is None or below.value is None:
            # What is told of a mapping that the option made is told of the option.
            below = WrittenTree({}, new.written)
        elif isinstance(below.value, str) and (place := schema_place(loc)) and place.source:
            # The short form of a source, about to get a second key.
            below = replace(below, value={"file": replace(below, own=False)})
        elif isinstance(below.value, str) and loc == ("model",):
            # Likewise.
            below = replace(below, value={"base": replace(below, own=False)})
        elif not isinstance(below.value, (dict, list)):
            raise UserError(
                f"{new.name}: expected keys below {dotted(loc)}, found {shown(below.value)}. Set "
                "it as a whole."
            )
        new = _put(below, parts, new, loc)
    held = above.value.copy()
    held[part] = new
    return replace(above, value=held)


def _item(node: WrittenTree, parts: list[str], option: str, loc: Loc) -> int:
    """Take the name of a stage, or a position, off the parts of a key, and return the position."""
    count, names = (
        len(node.value),
        [item.plain("name") for item in node.value] if loc == ("stages",) else [],
    )
    # A stage's name may hold dots, so the longest run of parts that is a name is taken for one.
    for size in range(len(parts), 0, -1):
        if (name := ".".join(parts[:size])) in names:
            del parts[:size]
            return names.index(name)
    part = parts.pop(0)
    if part.isascii() and part.isdigit() and int(part) < count:
        return int(part)
    positions = f"0 to {count - 1}" if count else "none, the list is empty"
    if loc == ("stages",):
        known = [name for name in names if isinstance(name, str)]
        wanted = "the name or position of a stage"
        raise UserError(f"{option}: {unknown(wanted, part, known, f'Positions: {positions}.')}")
    raise UserError(
        f"{option}: expected a position in {dotted(loc)}, found {shown(part)}. Positions: "
        f"{positions}."
    )
