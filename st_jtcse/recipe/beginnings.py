"""A first recipe for what somebody has: it extends a bundled one and names their data."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from st_jtcse import bundled
from st_jtcse.atomic import write_atomically
from st_jtcse.errors import UserError
from st_jtcse.recipe import yaml_source
from st_jtcse.recipe.copies import own_name
from st_jtcse.wording import unknown


@dataclass(frozen=True)
class Beginning:
    """What somebody may have, and what is asked then."""

    told: str  # what they have, in their words
    extends: str | None  # the bundled recipe; None: it is asked for
    data: str | None  # key of the data, which are asked for
    asks_model: bool = False


BEGINNINGS = {
    "sentences": Beginning("sentences, one per line", "adapt", "train"),
    "pairs": Beginning("graded pairs (sentence1, sentence2, score)", "cosent-mini", "pairs"),
    "model": Beginning("a good model, and sentences", "adapt", "train", asks_model=True),
    "paper": Beginning("a paper to reproduce", None, None),
}


def begin(
    destination: Path,
    have: str,
    *,
    data: Path | None = None,
    dev: Path | None = None,
    model: str | None = None,
    recipe: str | None = None,
) -> None:
    """Write a recipe for one of the :data:`BEGINNINGS`.

    Args:
        destination: The new file.
        have: Which beginning.
        data: Sentences or pairs.
        dev: Labelled data that choose the checkpoint, if there are any; else it is as in the recipe extended.
        model: Folder or Hub id of the model to start from; else as in the recipe extended.
        recipe: The bundled recipe to extend, where the beginning leaves it open.

    Raises:
        UserError: A file is missing or in the way, or there is no such recipe.
    """
    beginning = BEGINNINGS[have]
    extended = beginning.extends or recipe
    if extended not in bundled.recipes():
        raise UserError(unknown("the name of a bundled recipe", str(extended), bundled.recipes()))
    if destination.exists():
        raise UserError(f"{destination} exists already; choose another file.")
    for file in filter(None, (data, dev)):
        if not file.is_file():
            raise UserError(f"{file.name} is not in {file.absolute().parent}; check the path.")
    tree: dict[str, Any] = {"extends": extended, "name": own_name(destination, f"my-{extended}")}
    if model is not None:
        tree["model"] = model
    if data is not None and beginning.data is not None:
        tree["data"] = {beginning.data: _beside(data, destination)}
    if dev is not None:
        tree["evaluate"] = {"dev": _beside(dev, destination)}
    head = f"# What: {beginning.told}; st-train --show {extended} has all that is not said here.\n"
    run = f"# Run: st-train {shlex.quote(str(destination))}\n"
    write_atomically(destination, head + run + yaml_source.dump(tree))


def _beside(file: Path, destination: Path) -> str:
    """Return a file's path as the recipe has to write it: from its own folder."""
    return str(file) if file.is_absolute() else os.path.relpath(file, destination.parent)
