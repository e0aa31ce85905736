"""Files of rows with columns, looked at without a library: what parts their cells, what their
columns are called, and what kind of data these make.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection
from pathlib import Path

from st_jtcse.errors import UserError

_DELIMITERS = (",", ";", "\t")
DELIMITER_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs"}
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
# Kinds of data: how messages call them, the columns by which they are known, and the bundled recipe
# that trains on them. The first that fits, so the longest come first.
_KINDS = {
    "graded pairs": (("sentence1", "sentence2", "score"), "cosent-mini"),
    "pairs with a class": (("sentence1", "sentence2", "label"), "cosent-nli-bert"),
    "triplets": (("anchor", "positive", "negative"), "triplets"),
    "pairs that belong together": (("anchor", "positive"), "questions"),
    "queries with their texts": (("query", "relevant"), "questions"),
    "texts with labels": (("text", "label"), "labels"),
    "sentences": (("sentence",), "adapt"),
}


def delimiter_of(first_line: str) -> str:
    """Return what parts the cells of a CSV file that begins with this line."""
    unquoted = _QUOTED.sub("", first_line)
    return max(_DELIMITERS, key=unquoted.count)


def columns_of(file: Path) -> tuple[str, ...]:
    """Return the columns of a CSV, TSV, JSONL or Parquet file; none of another.

    Raises UserError where the file does not begin as such a file does.
    """
    if file.suffix == ".parquet":
        import pyarrow.parquet

        try:
            return tuple(pyarrow.parquet.read_schema(file).names)
        except (pyarrow.ArrowException, OSError):
            raise UserError(f"{file}: not a Parquet file; convert it.") from None
    if file.suffix not in (".csv", ".tsv", ".jsonl"):
        return ()
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        first = next((line for line in lines if line.strip()), "")
    if file.suffix != ".jsonl":
        return tuple(next(csv.reader([first], delimiter=delimiter_of(first)), ()))
    try:
        row = json.loads(first)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise UserError(
            f"{file}: expected a JSON object on each line, e.g. "
            '{"question": "...", "answer": "..."}, '
            f"found {first[:40].strip()!r}. Convert it."
        )
    return tuple(row)


def other_kind(found: Collection[str], wanted: Collection[str]) -> str | None:
    """Say what data with these columns are, where they are of another kind than was expected."""
    for kind, (columns, recipe) in _KINDS.items():
        if all(column in found for column in columns) and columns != tuple(wanted):
            return f"These are {kind}: see st-train --show {recipe}"
    return None
