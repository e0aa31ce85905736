"""Training sentences from local files or `datasets.load_dataset`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from datasets import Dataset

from st_jtcse.data.rows import Row, Source, read_rows
from st_jtcse.errors import UserError


@dataclass(frozen=True)
class Sentences:
    """Loaded training sentences."""

    dataset: Dataset  # one column, ``sentence``
    skipped_blank: int  # blank lines and cells that were left out
    sha256: str  # hash of the sentences, newline-separated


def load_sentences(sources: Sequence[Source]) -> Sentences:
    """Read sentences, in the order of the sources, and within one by row and then by column.

    Blank ones are skipped and counted; the others are stripped at both ends and otherwise untouched.

    Raises:
        UserError: A source is missing or faulty, or holds no sentence.
    """
    chunks: list[pa.Array] = []
    digest = hashlib.sha256()
    skipped = 0
    for source in sources:
        before = len(chunks)
        texts = _texts(source)
        # Arrow chunks as they are read: a long file is never held as Python strings.
        while block := list(islice(texts, 100_000)):
            found = [text for text in block if text]
            skipped += len(block) - len(found)
            digest.update("".join(f"{text}\n" for text in found).encode())
            chunks += [pa.array(found)] if found else []
        if len(chunks) == before:
            raise UserError(f"{source.label} holds no sentence, only blank lines; give a source with text.")
    return Sentences(Dataset(pa.table({"sentence": pa.chunked_array(chunks)})), skipped, digest.hexdigest())


def _texts(source: Source) -> Iterator[str]:
    """Every sentence of a source, stripped; blank ones as empty strings."""
    for row in read_rows(source):
        for column in _columns(source, row):
            if column not in row.values:
                raise UserError(
                    f"{row.place}: expected the column {column!r}, found {row.columns}; name the sentence columns with "
                    "'columns'."
                )
            yield "" if row.values[column] is None else row.text(column)


def _columns(source: Source, row: Row) -> tuple[str, ...]:
    """Columns of a row's sentences; of a data set with one text column and none called ``sentence``, that one."""
    if source.columns and not source.is_text:
        return source.columns
    if source.dataset is not None and "sentence" not in row.values:
        texts = [name for name, value in row.values.items() if isinstance(value, str)]
        return (texts[0],) if len(texts) == 1 else ("sentence",)
    return ("sentence",)
