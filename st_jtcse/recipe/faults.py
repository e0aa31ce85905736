"""Turns faults of a recipe into sentences, ``FILE:LINE key.path: expected X, found Y. Do Z.``, for
people.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from st_jtcse.recipe.blocks import SourceSpec
from st_jtcse.recipe.schema import Recipe
from st_jtcse.recipe.yaml_source import Loc, WrittenTree
from st_jtcse.wording import misfit, nearest, shown, unknown

# Arguments of transformers that people write a level too high; all are known once it is imported.
_COMMON_ARGUMENTS = (
    "bf16", "eval_steps", "learning_rate", "max_steps", "num_train_epochs",
    "per_device_train_batch_size", "warmup_steps", "weight_decay",
)  # fmt: skip


def _bare(annotation: Any) -> Any:
    """Strip `Annotated` and the null of an optional value."""
    origin, members = (
        get_origin(annotation),
        [part for part in get_args(annotation) if part is not type(None)],
    )
    is_optional = origin in (Union, UnionType) and len(members) == 1
    if is_optional or origin is Annotated:
        return _bare(members[0])
    return annotation


@dataclass(frozen=True)
class SchemaPlace:
    """A place in a recipe."""

    annotation: Any  # The type of its value; `Any` below free-form mappings
    description: str | None = None  # The schema's text about it

    @property
    def model(self) -> type[BaseModel] | None:
        """The block that stands here, if it is one."""
        is_model = isinstance(self.annotation, type) and issubclass(self.annotation, BaseModel)
        return self.annotation if is_model else None

    @property
    def source(self) -> type[SourceSpec] | None:
        """The kind of data source that may stand here, alone or for a list of one."""
        is_list = get_origin(self.annotation) is list
        kind = _bare(get_args(self.annotation)[0]) if is_list else self.annotation
        if isinstance(kind, type) and issubclass(kind, SourceSpec):
            return kind
        return None

    @property
    def keys(self) -> list[str]:
        """The keys the schema declares for this place."""
        model = self.source or self.model
        return list(model.model_fields) if model else []

    def step(self, part: str | int) -> SchemaPlace | None:
        """Return the place one key or list position below; None if the schema has no such place."""
        origin, arguments = get_origin(self.annotation), get_args(self.annotation)
        if self.annotation is Any:
            return self
        if self.model is not None:
            field = self.model.model_fields.get(str(part))
            if field is not None:
                return SchemaPlace(_bare(field.annotation), field.description)
            if self.model.model_config.get("extra") == "allow":
                return SchemaPlace(Any, self.description)
            return None
        if origin is dict:
            return SchemaPlace(_bare(arguments[1]), self.description)
        if origin not in (list, tuple):
            return None
        item = SchemaPlace(_bare(arguments[0]), self.description)
        if isinstance(part, int):
            return item
        return item.step(part) if self.source else None


def schema_place(loc: Loc) -> SchemaPlace | None:
    """Return the place at `loc` of a recipe; None if the schema has no such place."""
    place: SchemaPlace | None = SchemaPlace(Recipe)
    for part in loc:
        place = place.step(part) if place else None
    return place


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a recipe."""

    loc: Loc  # Where, as keys and list positions from the top
    text: str  # ``expected X, found Y. Do Z.``


def from_pydantic(error: ValidationError) -> list[Fault]:
    """Translate every error of a recipe's validation."""
    return [Fault(details["loc"], _text(details)) for details in error.errors(include_url=False)]


def tell(source: WrittenTree, faults: Iterable[Fault]) -> list[str]:
    """Write faults as sentences in the order of the file, those inherited after it, those of the
    command line last.
    """

    def order(fault: Fault) -> tuple[bool, str, int]:
        name, line, _ = source.at(fault.loc)
        return line is None, "" if line is None or name == source.name else name, line or 0

    ordered = sorted(faults, key=order)
    return list(dict.fromkeys(f"{source.place(fault.loc)}: {fault.text}" for fault in ordered))


def _blocks_with(key: str) -> list[str]:
    """Return the places one below the top that a key may stand at, dotted."""
    top = SchemaPlace(Recipe)
    blocks = {name: place for name in top.keys if (place := top.step(name)) is not None}
    found = [f"{name}.{key}" for name, place in blocks.items() if key in place.keys]
    return found + [f"args.{key}" for name in _COMMON_ARGUMENTS if name == key]


def _text(details: ErrorDetails) -> str:
    loc, found = details["loc"], details["input"]
    unnamed = SchemaPlace(Any)
    place = schema_place(loc) or unnamed
    if details["type"] == "value_error":
        # The schema's own validators speak in whole sentences.
        return str(details["ctx"]["error"])
    if details["type"] == "extra_forbidden":
        known = (schema_place(loc[:-1]) or unnamed).keys
        below = _blocks_with(str(loc[-1])) if len(loc) == 1 else []
        if below and nearest(str(loc[-1]), known) is None:
            return f"expected a known key, found {shown(loc[-1])}. Did you mean {below[0]!r}?"
        return unknown("a known key", str(loc[-1]), known)
    about = f" ({place.description.rstrip('.')})." if place.description else "."
    if details["type"] == "missing":
        return f"expected a value, found none. Add it{about}"
    if details["type"] == "none_required":
        return f"expected nothing here, found {shown(found)}. Correct it{about}"
    if details["type"] == "model_type":
        also = "a file name or " if place.source else ""
        return (
            f"expected {also}a mapping (keys: {', '.join(place.keys)}), found {shown(found)}. "
            f"Correct it{about}"
        )
    return misfit(details, place.annotation, found, place.description)
