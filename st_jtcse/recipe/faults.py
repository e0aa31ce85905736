"""Turns faults of a recipe into sentences, ``FILE:LINE key.path: expected X, found Y. Do Z.``, for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from st_jtcse.recipe.schema_places import SchemaPlace, schema_place
from st_jtcse.recipe.yaml_source import Loc, Source
from st_jtcse.wording import misfit, shown, unknown


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a recipe."""

    loc: Loc  # Where, as keys and list positions from the top
    text: str  # ``expected X, found Y. Do Z.``


def from_pydantic(error: ValidationError) -> list[Fault]:
    """Translate every error of a recipe's validation."""
    return [Fault(details["loc"], _text(details)) for details in error.errors(include_url=False)]


def tell(source: Source, faults: Iterable[Fault]) -> list[str]:
    """Write faults as sentences in the order of the file, those inherited after it, those of the command line last."""

    def order(fault: Fault) -> tuple[bool, str, int]:
        line, origin = source.line(fault.loc), source.origin(fault.loc)
        return line is None, origin.name if origin else "", line or 0

    ordered = sorted(faults, key=order)
    return list(dict.fromkeys(f"{source.place(fault.loc)}: {fault.text}" for fault in ordered))


def _text(details: ErrorDetails) -> str:
    loc, found = details["loc"], details["input"]
    place = schema_place(loc) or SchemaPlace(Any)
    if details["type"] == "value_error":
        return str(details["ctx"]["error"])  # The schema's own validators speak in whole sentences.
    if details["type"] == "extra_forbidden":
        parent = schema_place(loc[:-1]) or SchemaPlace(Any)
        return unknown("a known key", str(loc[-1]), parent.keys)
    about = f" ({place.description.rstrip('.')})." if place.description else "."
    if details["type"] == "missing":
        return f"expected a value, found none. Add it{about}"
    if details["type"] == "none_required":
        return f"expected nothing here, found {shown(found)}. Correct it{about}"
    if details["type"] == "model_type":
        also = "a file name or " if place.takes_source else ""
        return f"expected {also}a mapping (keys: {', '.join(place.keys)}), found {shown(found)}. Correct it{about}"
    return misfit(details, place.annotation, found, place.description)
