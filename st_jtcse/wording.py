"""How faults speak of what was written and what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


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
    """Say that `word` is not among the `known` ones.

    Args:
        what: What was expected, e.g. "a key of stages[0]".
        word: What was found.
        known: What would have been right.
        otherwise: The way out where none is near. Default: the list of known words.
    """
    known = list(known)
    near = nearest(word, known)
    listed = f"Use one of: {', '.join(known)}." if known else "Remove it."
    return f"expected {what}, found {shown(word)}. {f'Did you mean {near!r}?' if near else otherwise or listed}"
