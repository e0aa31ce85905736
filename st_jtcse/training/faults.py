"""Turns faults of a recipe into sentences, ``FILE:LINE key.path: expected X, found Y. Do Z.``, for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from st_jtcse.errors import UserError
from st_jtcse.training.schema import NAME_RULE
from st_jtcse.training.slots import Slot, slot
from st_jtcse.training.yaml_source import Loc, Source, parse_value
from st_jtcse.wording import nearest, shown, unknown

# What pydantic's error types say in words; the braces are filled from the error's context.
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "none_required": "nothing here",
    "literal_error": "{expected}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "string_too_short": "text that is not empty",
    "string_pattern_mismatch": NAME_RULE,
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}
_QUOTABLE = {"int_type": (int,), "float_type": (int, float), "bool_type": (bool,)}


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a recipe.

    Args:
        loc: Where, as keys and list positions from the top.
        text: ``expected X, found Y. Do Z.``
    """

    loc: Loc
    text: str


def quoted_scalar(value: Any, kinds: tuple[type, ...]) -> bool:
    """Say whether text would be a value of `kinds` without its quotes."""
    if not isinstance(value, str):
        return False
    try:
        return type(parse_value(value)) in kinds
    except UserError:
        return False


def from_pydantic(error: ValidationError) -> list[Fault]:
    """Translate every error of a recipe's validation."""
    return [_fault(details) for details in error.errors(include_url=False)]


def tell(source: Source, faults: Iterable[Fault]) -> list[str]:
    """Write faults as sentences in the order of the file, those inherited after it, those of the command line last."""

    def order(fault: Fault) -> tuple[bool, str, int]:
        line, origin = source.line(fault.loc), source.origin(fault.loc)
        return line is None, origin.name if origin else "", line or 0

    return [f"{source.place(fault.loc)}: {fault.text}" for fault in sorted(dict.fromkeys(faults), key=order)]


def sentences(error: ValidationError, source: Source) -> list[str]:
    """Translate a recipe's validation error into one sentence a fault."""
    return tell(source, from_pydantic(error))


def _fault(details: ErrorDetails) -> Fault:
    loc: Loc = details["loc"]
    kind, context = details["type"], details.get("ctx", {})
    place = slot(loc) or Slot(Any)
    if kind == "value_error":
        return Fault(loc, str(context["error"]))  # The schema's own validators speak in whole sentences.
    if kind == "extra_forbidden":
        parent = slot(loc[:-1]) or Slot(Any)
        return Fault(loc, unknown("a known key", str(loc[-1]), parent.keys))
    about = f" ({place.description.rstrip('.')})." if place.description else "."
    if kind == "missing":
        return Fault(loc, f"expected a value, found none. Add it{about}")
    if kind == "model_type":
        also = "a file name or " if place.takes_source else ""
        expected = f"{also}a mapping (keys: {', '.join(place.keys)})"
    elif kind in _EXPECTED:
        # pydantic turns the bounds of a number into floats; 0 reads better than 0.0.
        whole = {key: int(bound) for key, bound in context.items() if isinstance(bound, float) and bound.is_integer()}
        expected = _EXPECTED[kind].format(**{**context, **whole})
    else:
        expected = f"another value ({details['msg']})"
    found = details["input"]
    return Fault(
        loc, f"expected {expected}, found {shown(found)}. {_remedy(kind, found, place) or f'Correct it{about}'}"
    )


def _remedy(kind: str, found: Any, place: Slot) -> str | None:
    """Name the correction where the value gives it away."""
    if quoted_scalar(found, _QUOTABLE.get(kind, ())):
        return "Remove the quotes."
    if kind == "int_type" and isinstance(found, float) and found.is_integer():
        return f"Write {int(found)}."
    near = nearest(found, get_args(place.annotation)) if kind == "literal_error" and isinstance(found, str) else None
    return f"Did you mean {near!r}?" if near else None
