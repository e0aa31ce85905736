"""What a signature takes of plain data, as a pydantic model made from it."""

from __future__ import annotations

import inspect
import json
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from st_jtcse.unimported import names_in
from st_jtcse.wording import is_enum, misfit

_PLAIN = (int, float, bool, str, type(None), Any, dict, list, tuple)


@dataclass(frozen=True)
class Argument:
    """One argument of a function."""

    # What plain data can give for it; None if that is nothing, as for a callable.
    annotation: Any | None
    default: Any  # ``inspect.Parameter.empty`` if there is none

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.default is inspect.Parameter.empty


@cache
def arguments_of(function: Callable[..., Any]) -> dict[str, Argument]:
    """Return the arguments of a class's ``__init__`` by name, without the model."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        is_open = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name in ("self", "model") or is_open:
            continue
        annotation, default = None, parameter.default
        if parameter.annotation is not parameter.empty:
            annotation = resolved(parameter.annotation, function.__module__)
        elif isinstance(default, (bool, int, float, str)):
            # Several of the libraries' arguments are not annotated; a plain default tells the type.
            annotation = type(default)
        found[name] = Argument(settable(annotation), default)
    return found


def resolved(annotation: Any, module: str) -> Any | None:
    """Return an annotation with its names looked up in the module that wrote it.

    None where a name is not importable at run time, as under `TYPE_CHECKING`.
    """
    # Annotations are looked up one by one: the name of a model class, absent at run time, must not
    # spoil the rest.
    holder = types.SimpleNamespace(__annotations__={"value": annotation})
    names: Any = names_in(annotation, module)
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)["value"]
    except NameError:
        return None


def settable(annotation: Any) -> Any | None:
    """Reduce an annotation to what plain data can give; None if nothing is left of it, as of a
    callable.

    Where an enumeration may also be given as text, only its members are kept: the libraries look
    the text up in it.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        if settable(arguments[0]) is None:
            return None
        return annotation
    if origin in (Union, types.UnionType):
        members = [member for member in arguments if settable(member) is not None]
        if any(is_enum(member) for member in members):
            members = [member for member in members if member is not str]
        if members:
            return reduce(operator.or_, members)
        return None
    if origin is Literal or annotation in _PLAIN or is_enum(annotation):
        return annotation
    is_container = isinstance(origin, type) and issubclass(origin, Iterable)
    if is_container and all(item is ... or settable(item) is not None for item in arguments):
        return annotation
    return None


def model_of(name: str, arguments: Mapping[str, Argument]) -> type[BaseModel]:
    """Return a model called `name` whose fields are the arguments that plain data can give; all are
    optional.
    """
    fields: Any = {
        key: (given.annotation, None)
        for key, given in arguments.items()
        if given.annotation is not None
    }
    # Strict: whole numbers fit where numbers are wanted, and nothing else bends.
    return create_model(
        name, __config__=ConfigDict(strict=True, extra="ignore", protected_namespaces=()), **fields
    )


def converted(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain values by argument as the types of a :func:`model_of`, e.g. a list as the tuple
    that is wanted.

    Raises pydantic's ValidationError where a value does not fit.
    """
    # Strict JSON is the reading meant for plain data: lists fit tuples and names fit enumerations,
    # text fits no number.
    found = model.model_validate_json(json.dumps(values))
    return {key: getattr(found, key) for key in values}


def misfits(model: type[BaseModel], values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is wrong with plain values: each argument's name, and ``expected X, found Y. Do
    Z.``.

    Values that the model has no field for are passed over.
    """
    try:
        model.model_validate_json(json.dumps(values))
    except ValidationError as error:
        # A union tells a fault for each of its members: the first stands for all.
        firsts = {
            str(details["loc"][0]): details for details in reversed(error.errors(include_url=False))
        }
        kinds = {key: field.annotation for key, field in model.model_fields.items()}
        return [
            (key, misfit(firsts[key], kinds[key], values[key])) for key in values if key in firsts
        ]
    return []
