"""What a set is by its columns, of which its first row is enough."""

from __future__ import annotations

from collections.abc import Collection

from st_jtcse.corpus_folder import is_judged_corpus
from st_jtcse.data.column_names import SETS
from st_jtcse.data.rows import Source, checked_rows, read_rows
from st_jtcse.errors import UserError


def is_searched(source: Source) -> bool:
    """Whether a source is a corpus with queries, which is searched as a whole."""
    return source.corpus is not None or bool(source.file and is_judged_corpus(source.file))


def kind_of_set(source: Source, hint: str = "") -> tuple[str, ...]:
    """Return those of a source's columns that make a set.

    Args:
        source: A table.
        hint: For the message, what else helps where columns are missing.

    Raises:
        UserError: The source is missing or faulty, or has the columns of no set.
    """
    first = next(checked_rows([source], "sets", (), lambda row, _: row), None)
    columns = columns_of_a_set(first.values.keys() if first is not None else ())
    if columns is not None:
        return columns
    kinds = "; ".join(", ".join(columns) for columns in SETS)
    there = first.columns if first is not None else "no row"
    raise UserError(
        f"{source.label}: expected the columns of a set ({kinds}), found {there}. Rename "
        f"them{hint}."
    )


def columns_of_a_set(found: Collection[str]) -> tuple[str, ...] | None:
    """Return those of some columns that make a set; None where none do."""
    return next((columns for columns in SETS if set(columns) <= set(found)), None)


def holds_sentences(source: Source) -> bool:
    """Whether a source is of plain sentences: a text file, a table with the column `sentence` and
    those of no other set, or one that names a single column.
    """
    if source.is_text:
        return True
    if is_searched(source):
        return False
    if source.columns is not None:
        return len(source.columns) == 1
    first = next(read_rows(source), None)
    found = () if first is None else first.values.keys()
    return "sentence" in found and columns_of_a_set(found) is None
