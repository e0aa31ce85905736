"""Lays `--set KEY=VALUE` over a recipe's tree; a key is a dotted path of keys, list positions and stage names."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from st_jtcse.errors import UserError
from st_jtcse.recipe.schema import Recipe
from st_jtcse.recipe.schema_places import SchemaPlace
from st_jtcse.recipe.yaml_source import Loc, Source, dotted, parse_value
from st_jtcse.wording import shown, unknown

# How messages call a value that the recipe's sweep put in place.
SWEPT = "sweep."


def apply(source: Source, overrides: Sequence[str]) -> tuple[Source, list[str]]:
    """Return the tree with the overrides in place, and a sentence for each override that was refused.

    Args:
        source: The recipe as written.
        overrides: Texts ``KEY=VALUE``, laid over in order; VALUE is YAML. Stages may be named, as in
            ``stages.joint.args.learning_rate=1e-5``, or counted from 0.
    """
    faults: list[str] = []
    for override in overrides:
        try:
            source = _override(source, override)
        except UserError as error:
            faults.extend(error.faults)
    return source, faults


def lay(source: Source, values: Mapping[str, Any]) -> tuple[Source, list[str]]:
    """Return the tree with one point of its sweep in place, and a sentence for each key that was refused.

    Args:
        source: The recipe.
        values: Value by key; keys as for :func:`apply`.
    """
    faults: list[str] = []
    for key, value in values.items():
        try:
            source = _put(source, f"{SWEPT}{key}", key, value)
        except UserError as error:
            faults.extend(error.faults)
    return source, faults


def _override(source: Source, override: str) -> Source:
    key, equals, text = override.partition("=")
    option = f"--set {key}"
    if not key or not equals:
        raise UserError(f"--set: expected KEY=VALUE, found {shown(override)}. Write e.g. --set seed=1.")
    return _put(source, option, key, parse_value(text, option))


def _put(source: Source, option: str, key: str, value: Any) -> Source:
    data = copy.deepcopy(source.data)  # A refused override must leave no half-made path behind.
    loc = _Path(option, key).put(data, value)
    kept = {known: words for known, words in source.overridden.items() if known[: len(loc)] != loc}
    return replace(source, data=data, overridden={**kept, loc: option})


class _Path:
    """One dotted key on its way down the tree."""

    def __init__(self, option: str, key: str) -> None:
        self.option = option
        self.parts = key.split(".")
        self.loc: Loc = ()
        self.place = SchemaPlace(Recipe)

    def put(self, data: dict[str, Any], value: Any) -> Loc:
        """Set the value, making mappings that the file left out, and return where it went."""
        node: Any = data
        while True:
            part: Any = self._item(node) if isinstance(node, list) else self._key(node)
            if not self.parts:
                node[part] = value
                return self.loc
            below = node[part] if isinstance(node, list) else node.get(part)
            if below is None and self.place.holds_keys:
                below = {}
            elif isinstance(below, str) and self.place.takes_source:
                below = {"file": below}  # The short form of a source, about to get a second key.
            if not isinstance(below, (dict, list)):
                self._refuse(f"expected keys below {dotted(self.loc)}, found {shown(below)}. Set it as a whole.")
            node[part] = below
            node = below

    def _key(self, node: dict[str, Any]) -> str:
        part = self.parts.pop(0)
        below = self.place.step(part) if part else None
        if below is None:
            where = f"a key of {dotted(self.loc)}" if self.loc else "a key of a recipe"
            self._refuse(unknown(where, part, self.place.keys or list(node)))
        self._descend(part, below)
        return part

    def _item(self, node: list[Any]) -> int:
        names = [item.get("name") if isinstance(item, dict) else None for item in node]
        # A stage's name may hold dots, so the longest run of parts that is a name is taken for one.
        for size in range(len(self.parts), 0, -1):
            if self.loc == ("stages",) and ".".join(self.parts[:size]) in names:
                index = names.index(".".join(self.parts[:size]))
                del self.parts[:size]
                break
        else:
            index = self._position(node, [name for name in names if isinstance(name, str)])
        self._descend(index, self.place.step(index) or SchemaPlace(Any))
        return index

    def _position(self, node: list[Any], names: list[str]) -> int:
        part = self.parts.pop(0)
        if part.isascii() and part.isdigit() and int(part) < len(node):
            return int(part)
        positions = f"0 to {len(node) - 1}" if node else "none, the list is empty"
        if self.loc == ("stages",):
            self._refuse(unknown("the name or position of a stage", part, names, f"Positions: {positions}."))
        self._refuse(f"expected a position in {dotted(self.loc)}, found {shown(part)}. Positions: {positions}.")

    def _descend(self, part: str | int, below: SchemaPlace) -> None:
        self.loc = (*self.loc, part)
        self.place = below

    def _refuse(self, text: str) -> NoReturn:
        raise UserError(f"{self.option}: {text}")
