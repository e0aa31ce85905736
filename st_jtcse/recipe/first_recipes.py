"""The bundled recipes, to choose among and to copy."""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterator
from functools import cache
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
    "questions": "You have questions with answers, or a search log",
    "triplets": "You have triplets",
    "labels": "You have texts with labels",
    "sentences": "You have sentences",
}
# What people ask for in words that no recipe says, by how these begin, and where that leads.
_WORDS = {
    ("search", "retriev", "rag", "passage", "knowledge"): ("adapt", "questions"),
    ("folder", "doc", "html", "pdf", "markdown", "website", "wiki"): ("adapt",),
    ("domain", "unlabel", "own", "topic", "cluster", "text"): ("adapt",),
    ("question", "answer", "quer", "faq", "support", "chat"): ("questions",),
    ("log", "click", "recommend"): ("questions",),
    ("label", "class", "categor", "intent", "tag"): ("labels", "adapt"),
    ("similar", "duplicate", "paraphrase", "score", "sts"): ("cosent-mini",),
    ("negative", "triplet"): ("triplets",),
    ("csv", "tsv", "excel", "jsonl", "parquet", "column"): (
        "adapt", "cosent-mini", "labels", "questions", "triplets",
    ),
}  # fmt: skip


def _led_to(word: str) -> set[str]:
    """Return the recipes that a word of the user's own leads to."""
    found: set[str] = set()
    for beginnings, recipes in _WORDS.items():
        if word.lower().startswith(beginnings):
            found.update(recipes)
    return found


def by_need(word: str = "") -> dict[str, dict[str, dict[str, Any]]]:
    """Return the trees of the bundled recipes by name, under a heading that says what one has to
    have.

    `word` leaves those that hold it in their name, description, method or needs, and those that it
    leads to otherwise; none where there is no such recipe.
    """
    led_to = _led_to(word) if word else set()
    groups: dict[str, dict[str, dict[str, Any]]] = {
        heading: {} for heading in reversed(_HEADINGS.values())
    }
    # Each is read once, though many extend it.
    read = cache(yaml_source.load)
    for name, path in bundled.recipes().items():
        tree = extends.load(path, path.name, read).data
        needs = str(tree.get("needs"))
        said = f"{name} {tree.get('description')} {tree.get('method')} {needs}".lower()
        if word.lower() in said or name in led_to:
            heading = next(
                (heading for part, heading in _HEADINGS.items() if part in needs),
                _HEADINGS["sentences"],
            )
            groups[heading][name] = tree
    found = [(heading, recipes) for heading, recipes in groups.items() if recipes]
    # What a word leads to stands before what only mentions it.
    return dict(sorted(found, key=lambda group: led_to.isdisjoint(group[1])))


def copy(name: str, destination: Path) -> list[Path]:
    """Copy a bundled recipe to a new file, called and headed for what it is, and beside it the data
    that it names.

    Returns the data's files; what a recipe inherits needs none. Raises UserError where there is no
    such recipe, or a file is in the way.
    """
    original, beside = file_of(name, destination), destination.parent
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


def file_of(name: str | None, destination: Path) -> Path:
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
        f"name: {name}\n", yaml_source.dump({"name": own_name(destination, f"my-{name}")}), 1
    )


def own_name(file: Path, otherwise: str) -> str:
    """Return the name of a recipe that is written into a file, by the file's."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", file.stem).strip("-._") or otherwise


def _texts(value: Any) -> Iterator[str]:
    """Yield every text of a tree."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
