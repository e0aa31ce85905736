"""Recipes of one's own, from bundled ones: chosen among them, copied to be edited, or begun by
extending one.
"""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from st_jtcse import bundled
from st_jtcse.atomic import check_new_file, write_atomically, write_new
from st_jtcse.errors import UserError
from st_jtcse.recipe import extends, yaml_source
from st_jtcse.wording import unknown

# What a user has, by what a recipe's `needs` names; the first that fits. All others start from
# sentences alone.
_HEADINGS = {
    "the Hub": "You reproduce a paper",
    "teacher": "You have sentences and a good model, which teaches",
    "pairs": "You have graded pairs",
    "sentences": "You have sentences",
}


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


def by_need(word: str = "") -> dict[str, dict[str, dict[str, Any]]]:
    """Return the trees of the bundled recipes by name, under a heading that says what one has to
    have.

    `word` leaves those that hold it in their name, description, method or needs; raises UserError
    where none does.
    """
    groups: dict[str, dict[str, dict[str, Any]]] = {
        heading: {} for heading in reversed(_HEADINGS.values())
    }
    for name, path in bundled.recipes().items():
        tree = extends.load(path).data
        needs = str(tree.get("needs"))
        if word.lower() in f"{name} {tree.get('description')} {tree.get('method')} {needs}".lower():
            heading = next(
                (heading for part, heading in _HEADINGS.items() if part in needs),
                _HEADINGS["sentences"],
            )
            groups[heading][name] = tree
    found = {heading: recipes for heading, recipes in groups.items() if recipes}
    if not found:
        raise UserError(f"no bundled recipe mentions {word!r}; st-train --list shows all.")
    return found


def copy(name: str, destination: Path) -> list[Path]:
    """Copy a bundled recipe to a new file, called and headed for what it is, and beside it the data
    that it names.

    Returns the data's files; what a recipe inherits needs none. Raises UserError where there is no
    such recipe, or a file is in the way.
    """
    original, beside = _file_of(name, destination), destination.parent
    here, texts = original.parent, dict.fromkeys(_texts(yaml_source.load(original).data))
    data = [file for file in texts if os.path.isfile(here / file)]
    new = [file for file in data if not _is_same(beside / file, here / file)]
    for file in new:
        if os.path.lexists(beside / file):
            raise UserError(
                f"the recipe reads {file}, and {beside / file} is another file; choose another "
                "folder."
            )
    write_new(destination, _renamed(original.read_text(encoding="utf-8"), name, destination))
    written = [destination]
    try:
        for file in new:
            (beside / file).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(beside / file, (here / file).read_bytes())
            written.append(beside / file)
    except BaseException:
        for path in written:  # Without its data it would only look like a copy.
            path.unlink()
        raise
    return [beside / file for file in data]


def _is_same(file: Path, other: Path) -> bool:
    return file.is_file() and file.read_bytes() == other.read_bytes()


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
        dev: Labelled data that choose the checkpoint, if there are any; else it is as in the recipe
            extended.
        model: Folder or Hub id of the model to start from; else as in the recipe extended.
        recipe: The bundled recipe to extend, where the beginning leaves it open.

    Raises:
        UserError: A file is missing or in the way, or there is no such recipe.
    """
    beginning = BEGINNINGS[have]
    extended = beginning.extends or recipe
    _file_of(extended, destination)
    for file in filter(None, (data, dev)):
        if not file.is_file():
            raise UserError(f"{file.name} is not in {file.absolute().parent}; check the path.")
    tree: dict[str, Any] = {"extends": extended, "name": _own_name(destination, f"my-{extended}")}
    if model is not None:
        tree["model"] = model
    if data is not None and beginning.data is not None:
        tree["data"] = {beginning.data: _beside(data, destination)}
    if dev is not None:
        tree["evaluate"] = {"dev": _beside(dev, destination)}
    head = f"# What: {beginning.told}; st-train --show {extended} has all that is not said here.\n"
    run = f"# Run: st-train {shlex.quote(str(destination))}\n"
    write_new(destination, head + run + yaml_source.dump(tree))


def _beside(file: Path, destination: Path) -> str:
    """Return a file's path as the recipe has to write it: from its own folder."""
    return str(file) if file.is_absolute() else os.path.relpath(file, destination.parent)


def _file_of(name: str | None, destination: Path) -> Path:
    """Return a bundled recipe's file; raises UserError where there is none, or something lies where
    it is to go.
    """
    known = bundled.recipes()
    if name not in known:
        raise UserError(unknown("the name of a bundled recipe", str(name), known))
    check_new_file(destination)
    return known[str(name)]


def _renamed(text: str, name: str, destination: Path) -> str:
    """Return a recipe's text with the name, the heading and the command of its copy."""
    text = text.replace("# What: ", f"# What: a copy of the bundled {name}: ", 1)
    text = text.replace(
        f"# Run: st-train {name}", f"# Run: st-train {shlex.quote(str(destination))}", 1
    )
    return text.replace(
        f"name: {name}\n", yaml_source.dump({"name": _own_name(destination, f"my-{name}")}), 1
    )


def _own_name(file: Path, otherwise: str) -> str:
    """Return the name of a recipe that is written into a file, by the file's."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", file.stem).strip("-._") or otherwise


def _texts(value: Any) -> Iterator[str]:
    """Yield every text of a tree."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
