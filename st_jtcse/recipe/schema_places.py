"""Walks the recipe's schema by location: what may stand at a place, and what is written about it."""

from __future__ import annotations

from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from st_jtcse.recipe.schema import Recipe, SourceSpec
from st_jtcse.recipe.yaml_source import Loc


def _bare(annotation: Any) -> Any:
    """Strip `Annotated` and the null of an optional value."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, UnionType):
            members = [member for member in get_args(annotation) if member is not type(None)]
            if len(members) != 1:
                return annotation
            annotation = members[0]
        else:
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
    def takes_source(self) -> bool:
        """Whether one data source may stand here, alone or for a list of one."""
        is_list = get_origin(self.annotation) is list
        return (_bare(get_args(self.annotation)[0]) if is_list else self.annotation) is SourceSpec

    @property
    def keys(self) -> list[str]:
        """The keys the schema declares for this place."""
        model = SourceSpec if self.takes_source else self.model
        return list(model.model_fields) if model else []

    def step(self, part: str | int) -> SchemaPlace | None:
        """Return the place one key or list position below; None if the schema has no such place."""
        origin, arguments = get_origin(self.annotation), get_args(self.annotation)
        below: SchemaPlace | None = None
        if self.annotation is Any:
            below = self
        elif self.model is not None:
            field = self.model.model_fields.get(str(part))
            if field is not None:
                below = SchemaPlace(_bare(field.annotation), field.description)
            elif self.model.model_config.get("extra") == "allow":
                below = SchemaPlace(Any, self.description)
        elif origin is dict:
            below = SchemaPlace(_bare(arguments[1]), self.description)
        elif origin in (list, tuple):
            item = SchemaPlace(_bare(arguments[0]), self.description)
            if isinstance(part, int):
                below = item
            elif self.takes_source:
                below = item.step(part)
        return below


def schema_place(loc: Loc) -> SchemaPlace | None:
    """Return the place at `loc` of a recipe; None if the schema has no such place."""
    place: SchemaPlace | None = SchemaPlace(Recipe)
    for part in loc:
        if place is None:
            return None
        place = place.step(part)
    return place


def takes_source(loc: Loc) -> bool:
    """Whether a data source may stand at `loc` of a recipe, in its short form too."""
    place = schema_place(loc)
    return place is not None and place.takes_source
