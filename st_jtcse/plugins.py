"""Finds what installed packages add by entry points; a recipe alone never imports code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from st_jtcse.errors import UserError


def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, sorted."""
    return _found_on(group, tuple(sys.path))


@cache  # Every installed package is asked.
def _found_on(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    points = {point.name: point for point in entry_points(group=group)}
    return dict(sorted(points.items()))


def imported(point: EntryPoint, what: str) -> Any:
    """Return what an entry point names; raises UserError where that fails.

    Args:
        point: The entry point.
        what: What it is, as the message calls it: ``"a loss"``.
    """
    try:
        return point.load()
    except Exception as error:  # Another package's code fails as it likes.
        raise UserError(
            f"expected {what} that can be imported, found {point.name!r} at {point.value!r}, which "
            f"fails with {type(error).__name__}: {error}. Fix or uninstall the package that names "
            "it."
        ) from error
