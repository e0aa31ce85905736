"""How faults speak of what was written and what was meant: ``expected X, found Y. Do Z.``."""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# What may be called by a name, as a stage and its folder are, and the rule in words.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
NAME_RULE = "letters, digits, '_', '.' or '-', starting with a letter or digit"

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
}
# What pydantic's errors about a value of the right type say; the braces are filled from the error's
# context.
_BOUNDS = {
    "finite_number": "a finite number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "string_too_short": "text that is not empty",
    "string_pattern_mismatch": NAME_RULE,
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}
# What pydantic's errors about a value of another type say.
_TYPES = {
    "missing": "a value",
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "string_type": _WORDS[str],
    "int_type": _WORDS[int],
    "float_type": _WORDS[float],
    "bool_type": _WORDS[bool],
    "literal_error": "{expected}",
    "json_invalid": "JSON",
}
_MANY = 6  # Choices listed in a message that can name the near one instead.


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` was probably meant to be, upper or lower case alike."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def shown(value: Any) -> str:
    """Write a value the way YAML would, short enough for a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "a mapping"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def unknown(what: str, word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Say that `what`, e.g. "a key of stages[0]", was expected, and `word`, not among the `known`
    ones, found.

    `otherwise` is the way out where none is near, instead of the list of known words.
    """
    known = list(known)
    near = nearest(word, known)
    listed = f"Use one of: {', '.join(known)}." if known else "Remove it."
    return (
        f"expected {what}, found {shown(word)}. "
        f"{f'Did you mean {near!r}?' if near else otherwise or listed}"
    )


def absent(path: object) -> str:
    """Say that a path leads nowhere."""
    return f"{path} does not exist; check the path."


def dotted(loc: tuple[str | int, ...]) -> str:
    """Write a location as people read it, e.g. ``stages[1].args.learning_rate``."""
    written = ""
    for part in loc:
        if isinstance(part, int):
            written += f"[{part}]"
        else:
            written += f".{part}" if part and part.isprintable() else f".{part!r}"
    return written.removeprefix(".")


def is_enum(annotation: Any) -> bool:
    """Whether an annotation is an enumeration."""
    return isinstance(annotation, type) and issubclass(annotation, Enum)


def words(annotation: Any) -> str:
    """Say what values of an annotation are, in plain data."""
    if annotation in _WORDS:
        return _WORDS[annotation]
    if get_origin(annotation) is Annotated:
        return words(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(words(member) for member in get_args(annotation))
    choices = [shown(choice) for choice in _choices(annotation)]
    if len(choices) == 1:
        return choices[0]
    if choices:
        return f"one of {', '.join(choices[:_MANY])}{', ...' if len(choices) > _MANY else ''}"
    if annotation is Any:
        return "a value"
    if dict in (get_origin(annotation), annotation):
        return "a mapping"
    return "a list"


def misfit(error: ErrorDetails, annotation: Any, found: Any, about: str | None = None) -> str:
    """Tell an error of pydantic's about the value `found`, which should be of the `annotation`, as
    a fault of it.

    `about` says what the key is for, None if nothing is written about it.
    """
    remedy = None
    if (expected := _bounds(error)) is None:
        expected, remedy = words(annotation), _remedy(annotation, found)
    otherwise = f"Correct it ({about.rstrip('.')})." if about else "Correct the value."
    return f"expected {expected}, found {shown(found)}. {remedy or otherwise}"


def expected_and_found(error: ErrorDetails) -> str:
    """Tell an error of pydantic's about a file that no person writes, without a remedy."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    expected = _bounds(error) or _TYPES.get(error["type"], "another value")
    found = shown(error["input"])
    if error["type"] == "missing":
        found = "none"
    if error["type"] == "json_invalid":
        found = f"something else ({error['ctx']['error']})"
    return f"expected {expected.format(**error.get('ctx', {}))}, found {found}"


def _bounds(error: ErrorDetails) -> str | None:
    """Say what a value of the right type may be; None where an error is about the type."""
    bounds = _BOUNDS.get(error["type"])
    if bounds is None:
        return None
    # pydantic turns the bounds of a number into floats; 0 reads better than 0.0.
    bound = {
        key: int(to) if to == int(to) else to
        for key, to in error.get("ctx", {}).items()
        if key in bounds
    }
    return bounds.format(**bound)


def _remedy(annotation: Any, found: Any) -> str | None:
    """Name the correction where the value gives it away."""
    members = (annotation,)
    if get_origin(annotation) in (Union, types.UnionType):
        members = get_args(annotation)
    told = set(map(words, members))
    wanted = tuple(kind for kind in (int, float, bool) if _WORDS[kind] in told)
    if isinstance(found, str) and type(_unquoted(found)) in (
        *wanted,
        *((int,) if float in wanted else ()),
    ):
        return "Remove the quotes."
    if int in wanted and isinstance(found, float) and found.is_integer():
        return f"Write {int(found)}."
    names = [choice for member in members for choice in _choices(member) if isinstance(choice, str)]
    near = nearest(found, names) if isinstance(found, str) else None
    if near:
        return f"Did you mean {near!r}?"
    if len(names) > _MANY:
        return f"Use one of: {', '.join(names)}."
    return None


def _unquoted(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _choices(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if is_enum(annotation):
        return [member.value for member in annotation]
    return []
