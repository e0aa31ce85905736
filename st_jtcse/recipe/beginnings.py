"""First recipes by what somebody has: a bundled recipe with their file, its columns and the range
of its scores filled in.
"""

from __future__ import annotations

import math
import os.path
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from st_jtcse.atomic import write_new
from st_jtcse.errors import UserError
from st_jtcse.recipe import yaml_source
from st_jtcse.recipe.first_recipes import file_of, own_name
from st_jtcse.table_files import columns_of

_MOST_SHOWN = 8  # Columns that are listed in a message


@dataclass(frozen=True)
class Column:
    """A column that a kind of data needs.

    Args:
        name: What evaluation sets call it.
        told: What it holds, in the user's words.
        others: What files often call it, the most telling names first.
    """

    name: str
    told: str
    others: tuple[str, ...]


@dataclass(frozen=True)
class Beginning:
    """What somebody may have.

    Args:
        told: What it is, in their words.
        extends: The bundled recipe to lay theirs over; None: they name it.
        data: The key of the training data; None: the recipe has its own.
        columns: The columns of a file of it; none where each line is a text.
    """

    told: str
    extends: str | None
    data: str | None = None
    columns: tuple[Column, ...] = ()


_TEXT = ("text", "sentence", "utterance", "message", "question", "title", "body", "content")
_ANCHOR = ("anchor", "query", "question", "text", "sentence", "sentence1", "premise")
_ASKED = ("query", "question", "anchor", "search", "search_term", "prompt", "title", "input")
_FOUND = (
    "answer", "relevant", "positive", "document", "passage", "response", "context", "clicked",
    "result", "text", "body", "content", "output",
)  # fmt: skip
_LABEL = ("label", "class", "category", "intent", "topic", "tag")
_SCORE = ("score", "similarity", "label", "grade", "rating", "gold", "relatedness")
_FIRST = ("sentence1", "text1", "sentence_a", "text_a", "question1", "first", "s1", "a")
_SECOND = ("sentence2", "text2", "sentence_b", "text_b", "question2", "second", "s2", "b")

BEGINNINGS = {
    "documents": Beginning("a folder of documents", "adapt", "train"),
    "texts": Beginning(
        "short texts, without labels", "adapt", "train", (Column("sentence", "text", _TEXT),)
    ),
    "pairs": Beginning(
        "pairs of texts, each with a score for how similar they are",
        "cosent-mini",
        "pairs",
        (
            Column("sentence1", "first text", _FIRST),
            Column("sentence2", "second text", _SECOND),
            Column("score", "score", _SCORE),
        ),
    ),
    "questions": Beginning(
        "questions with their answers, or queries with their documents",
        "questions",
        "pairs",
        (Column("query", "question", _ASKED), Column("relevant", "answer", _FOUND)),
    ),
    "triplets": Beginning(
        "triplets: a text, one that belongs to it, one that does not",
        "triplets",
        "pairs",
        (
            Column("anchor", "text", _ANCHOR),
            Column("positive", "text that belongs to it", ("positive", "pos", *_FOUND)),
            Column("negative", "text that does not", ("negative", "neg", "hard_negative", "wrong")),
        ),
    ),
    "labels": Beginning(
        "texts with a label each",
        "labels",
        "pairs",
        (Column("text", "text", _TEXT), Column("label", "label", _LABEL)),
    ),
    "logs": Beginning(
        "a search log: what was searched for, and what was chosen",
        "questions",
        "pairs",
        (
            Column("query", "search", _ASKED),
            Column("relevant", "text that was chosen", ("clicked", "chosen", *_FOUND)),
        ),
    ),
    "paper": Beginning("a paper to reproduce", None),
}


def first_steps() -> list[list[str]]:
    """Return the rows of a table: what somebody may have, and the command that begins with it."""
    return [
        [beginning.told, f"st-train init --have {have}"] for have, beginning in BEGINNINGS.items()
    ]


# Asks for one of a file's columns, by what it is to hold; raises UserError where nobody can answer.
Ask = Callable[[str, Sequence[str]], str]


@dataclass(frozen=True)
class Given:
    """What somebody has, in files.

    Args:
        data: Training data, as the beginning says.
        dev: Labelled data that choose the checkpoint; None: as in the recipe extended.
        columns: The columns of both, in the beginning's order; None: found by their names.
        model: Folder or Hub id of the model to start from; None: as in the recipe extended.
        recipe: The bundled recipe to extend, where the beginning leaves it open.
    """

    data: Path | None = None
    dev: Path | None = None
    columns: tuple[str, ...] | None = None
    model: str | None = None
    recipe: str | None = None


def begin(destination: Path, have: str, given: Given, ask: Ask) -> list[str]:
    """Write a recipe for one of the :data:`BEGINNINGS`.

    Args:
        destination: The new file.
        have: Which beginning.
        given: What there is.
        ask: What to ask where the names of a file's columns do not say what they hold.

    Returns:
        Sentences about what was found in the files.

    Raises:
        UserError: A file is missing, in the way or of other columns, or there is no such recipe.
    """
    beginning = BEGINNINGS[have]
    extended = beginning.extends or given.recipe
    file_of(extended, destination)
    for file in filter(None, (given.data, given.dev)):
        _check_there(file, have)
    tree: dict[str, Any] = {"extends": extended, "name": own_name(destination, f"my-{extended}")}
    told: list[str] = []
    if given.model is not None:
        tree["model"] = given.model
    if given.data is not None and beginning.data is not None:
        columns = _columns_in(given.data, beginning, given.columns, ask)
        tree["data"] = _data_block(given.data, beginning, columns, destination)
        told += _found_in(given.data, beginning, columns)
        if have == "pairs":
            told.append(_add_score_range(tree, given.data, columns))
    if given.dev is not None:
        dev = _dev_source(given.dev, beginning, given.columns, ask, destination)
        tree["evaluate"] = {"dev": dev, **tree.get("evaluate", {})}
    elif beginning.data == "pairs":
        # The recipe's own set is of other text, and says nothing about theirs.
        tree["evaluate"] = {"dev": None, **tree.get("evaluate", {})}
        tree["args"] = {"eval_strategy": "no"}
        told.append("Nothing measures the result: put rows aside, and give them as --dev FILE.")
    _write(destination, beginning.told, tree)
    return told


def _write(destination: Path, told: str, tree: dict[str, Any]) -> None:
    head = f"# What: {told}; st-train --show {tree['extends']} has all that is not said here.\n"
    run = f"# Run: st-train {shlex.quote(str(destination))}\n"
    write_new(destination, head + run + yaml_source.dump(tree))


def _add_score_range(tree: dict[str, Any], file: Path, columns: tuple[str, ...]) -> str:
    low, high = _score_range(file, columns)
    tree["data"]["score_range"] = [low, high]
    tree["evaluate"] = {"score_range": [low, high]}
    return f"{file.name}: scores from {low:g} to {high:g}."


def _found_in(file: Path, beginning: Beginning, columns: tuple[str, ...]) -> list[str]:
    """Say which columns of a file hold what."""
    held = zip(beginning.columns, columns)
    parts = [f"{name!r} holds the {column.told}" for column, name in held]
    if parts:
        return [f"{file.name}: {', '.join(parts)}."]
    return []


def _check_there(file: Path, have: str) -> None:
    if file.is_file() or (have == "documents" and file.is_dir()):
        return
    if file.is_dir():
        raise UserError(f"{file} is a folder; name a file in it, or say --have documents.")
    raise UserError(f"{file.name} is not in {file.absolute().parent}; check the path.")


def _columns_in(
    file: Path, beginning: Beginning, named: tuple[str, ...] | None, ask: Ask
) -> tuple[str, ...]:
    """Return the columns of a file that a beginning needs, in its order; none of plain lines."""
    if not beginning.columns or file.suffix == ".txt":
        if beginning.data == "pairs":
            wanted = ", ".join(column.told for column in beginning.columns)
            raise UserError(
                f"{file}: expected columns ({wanted}), found a text file; give .csv, .jsonl or "
                ".parquet."
            )
        return ()
    there = columns_of(file)
    if named is not None:
        _check_named(file, beginning, named, there)
        return named
    if not there:
        raise UserError(f"{file}: expected .txt, .csv, .jsonl or .parquet; convert or rename it.")
    found: list[str] = []
    for column in beginning.columns:
        left = [name for name in there if name not in found]
        last = left[0] if len(left) == 1 and len(there) == len(beginning.columns) else None
        found.append(_by_name(column, left) or last or ask(column.told, left))
    return tuple(found)


def _check_named(
    file: Path, beginning: Beginning, named: tuple[str, ...], there: tuple[str, ...]
) -> None:
    shown = ", ".join(there[:_MOST_SHOWN])
    if len(named) != len(beginning.columns):
        wanted = ", ".join(column.told for column in beginning.columns)
        raise UserError(f"--columns: expected {len(beginning.columns)} ({wanted}), found {named}.")
    for name in named:
        if name not in there:
            raise UserError(f"--columns: {file} has no column {name!r}, only {shown}; correct it.")


def _by_name(column: Column, there: Sequence[str]) -> str | None:
    """Return the column whose name says that it is the one, upper or lower case alike."""
    plain = {re.sub(r"[\s-]+", "_", name.strip().lower()): name for name in there}
    for name in (column.name, *column.others):
        if name in plain:
            return plain[name]
    return None


def _data_block(
    file: Path, beginning: Beginning, columns: tuple[str, ...], destination: Path
) -> dict[str, Any]:
    path = _beside(file, destination)
    if not columns or columns == ("sentence",):
        return {str(beginning.data): path}
    return {str(beginning.data): {"file": path, "columns": list(columns)}}


def _dev_source(
    file: Path,
    beginning: Beginning,
    named: tuple[str, ...] | None,
    ask: Ask,
    destination: Path,
) -> Any:
    """Return the block of a set that chooses the checkpoint, its columns called as sets call them;
    beside texts without labels it may be of any kind.
    """
    path = _beside(file, destination)
    wanted = [column.name for column in beginning.columns]
    if beginning.data != "pairs" or set(wanted) <= set(columns_of(file)):
        return path
    columns = _columns_in(file, beginning, named, ask)
    return {"file": path, "columns": dict(zip(wanted, columns))}


def _score_range(file: Path, columns: tuple[str, ...]) -> tuple[float, float]:
    """Return the range that holds all scores of a file: 0 to 1, 0 to 5, or what it takes."""
    from st_jtcse.data.rows import Source, number, read_rows

    read = (number(row.values.get(columns[-1])) for row in read_rows(Source(file)))
    scores = [score for score in read if score is not None]
    if not scores:
        raise UserError(f"{file}: no number in {columns[-1]!r}; name the column of the scores.")
    low, high = min(scores), max(scores)
    for most in (1.0, 5.0):
        if low >= 0 and high <= most:
            return 0.0, most
    return float(math.floor(min(low, 0.0))), float(math.ceil(high))


def _beside(file: Path, destination: Path) -> str:
    """Return a file's path as the recipe has to write it: from its own folder."""
    if file.is_absolute():
        return str(file)
    return os.path.relpath(file, destination.parent)
