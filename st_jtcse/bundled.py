"""Finds the files that travel with the package, in a wheel or beside a checkout; nothing else knows
where.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def folder(name: Literal["recipes", "model_cards"]) -> Path:
    """Return the folder of bundled files called `name`."""
    package = Path(__file__).parent
    inside = package / "bundled_data" / name
    # An editable install or a checkout has no bundled_data: the build copies the top-level folders
    # there.
    if inside.is_dir():
        return inside
    return package.parent / name


def recipes() -> dict[str, Path]:
    """Return every bundled recipe by name, sorted; the name is the file's stem, wherever
    it lies.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder("recipes").glob("**/*.yaml"), key=lambda path: (path.stem, path)):
        if path.stem in found:  # A defect of the package, not of the user's input.
            raise RuntimeError(
                f"two bundled recipes are called '{path.stem}': {found[path.stem]} and {path}"
            )
        found[path.stem] = path
    return found
