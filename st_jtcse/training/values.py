"""Checks plain YAML values against Python annotations, and says in words what an annotation takes."""

from __future__ import annotations

import json
import operator
import sys
import types
import typing
from collections.abc import Iterable
from enum import Enum
from functools import reduce
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from st_jtcse.training.faults import quoted_scalar
from st_jtcse.wording import nearest, shown

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
    Any: "a value",
}
_CONTAINERS = (dict, list, tuple)
_MANY = 6  # Choices listed in a message that can name the near one instead.


def resolved(annotation: Any, module: str) -> Any | None:
    """Return an annotation with its names looked up in the module that wrote it.

    Args:
        annotation: As found in a signature or dataclass; text where the module postpones evaluation.
        module: Name of that (imported) module.

    Returns:
        The type, or None where a name is not importable at run time, as under `TYPE_CHECKING`.
    """
    # Annotations are looked up one by one: the name of a model class, absent at run time, must not spoil the rest.
    holder = types.SimpleNamespace(__annotations__={"value": annotation})
    try:
        return typing.get_type_hints(holder, globalns=vars(sys.modules[module]))["value"]
    except NameError:
        return None


def settable(annotation: Any) -> Any | None:
    """Reduce an annotation to what YAML can write; None if nothing is left of it, as of a callable.

    Where an enumeration may also be given as text, only its members are kept: the libraries look the text up in it.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        members = [member for member in arguments if settable(member) is not None]
        if any(_is_enum(member) for member in members):
            members = [member for member in members if member is not str]
        return reduce(operator.or_, members) if members else None
    if origin is Literal or annotation in _WORDS or annotation in _CONTAINERS or _is_enum(annotation):
        return annotation
    is_container = isinstance(origin, type) and issubclass(origin, Iterable)
    return annotation if is_container and all(item is ... or settable(item) is not None for item in arguments) else None


def words(annotation: Any) -> str:
    """Say what a settable annotation takes."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _WORDS:
        return _WORDS[annotation]
    if origin in (Union, types.UnionType):
        return " or ".join(words(member) for member in arguments)
    choices = [shown(choice) for choice in _choices(annotation)]
    if choices:
        return f"one of {', '.join(choices[:_MANY])}{', ...' if len(choices) > _MANY else ''}"
    return "a mapping" if dict in (origin, annotation) else "a list"


def convert(annotation: Any, value: Any) -> Any:
    """Return the value as the annotation's type, e.g. a YAML list as a tuple.

    Raises:
        ValidationError: If the value does not fit. Whole numbers fit where numbers are wanted; nothing else bends.
    """
    # Strict JSON is the reading meant for plain data: lists fit tuples and names fit enumerations, text fits no number.
    return TypeAdapter(annotation).validate_json(json.dumps(value), strict=True)


def misfit(annotation: Any, value: Any) -> str | None:
    """Return ``expected X, found Y. Do Z.`` if the value does not fit the settable annotation."""
    try:
        convert(annotation, value)
    except ValidationError:
        return f"expected {words(annotation)}, found {shown(value)}. {_way_out(annotation, value)}"
    return None


def _way_out(annotation: Any, value: Any) -> str:
    members = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    numbers = (int, float) if float in members else (int,) if int in members else ()
    if quoted_scalar(value, (*numbers, *((bool,) if bool in members else ()))):
        return "Remove the quotes."
    if int in members and isinstance(value, float) and value.is_integer():
        return f"Write {int(value)}."
    names = [choice for member in members for choice in _choices(member) if isinstance(choice, str)]
    near = nearest(value, names) if isinstance(value, str) else None
    if near:
        return f"Did you mean {near!r}?"
    return f"Use one of: {', '.join(names)}." if len(names) > _MANY else "Correct the value."


def _choices(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [member.value for member in annotation] if _is_enum(annotation) else []


def _is_enum(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Enum)
