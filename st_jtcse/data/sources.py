"""Training sentences from local files or `datasets.load_dataset`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from datasets import Dataset

from st_jtcse.data.rows import Row, Source, columns_of, read_lines, read_rows
from st_jtcse.errors import UserError


@dataclass(frozen=True)
class Sentences:
    """Loaded training sentences.

    Args:
        dataset: One column, ``sentence``.
        skipped_blank: Blank lines and cells that were left out.
        sha256: Hash of the sentences, newline-separated.
    """

    dataset: Dataset
    skipped_blank: int
    sha256: str


def load_sentences(sources: Sequence[Source]) -> Sentences:
    """Read sentences, in the order of the sources, and within one by row and then by column.

    Blank ones are skipped and counted; the others are stripped at both ends and otherwise untouched.

    Args:
        sources: Where to read.

    Returns:
        The sentences.

    Raises:
        UserError: A source is missing or faulty, or holds no sentence.
    """
    chunks: list[pa.Array] = []
    digest = hashlib.sha256()
    skipped = 0
    for source in sources:
        found = 0
        # Arrow chunks as they are read: a long file is never held as Python strings.
        block: list[str] = []
        for text in _texts(source):
            if not text:
                skipped += 1
                continue
            found += 1
            digest.update(text.encode() + b"\n")
            block.append(text)
            if len(block) == 100_000:
                chunks.append(pa.array(block))
                block = []
        if not found:
            raise UserError(f"{source.label} holds no sentence, only blank lines; give a source with text.")
        if block:
            chunks.append(pa.array(block))
    table = pa.table({"sentence": pa.chunked_array(chunks)})
    return Sentences(Dataset(table), skipped, digest.hexdigest())


def _texts(source: Source) -> Iterator[str]:
    """Every sentence of a source, stripped; blank ones as empty strings."""
    if source.file is not None and source.file.suffix == ".txt":
        for index, (_, line) in enumerate(read_lines(source.file)):
            if source.limit is not None and index >= source.limit:
                return
            yield line.strip()
        return
    for row in read_rows(source):
        for column in source.columns or _default_columns(source, row):
            value = row.values.get(column)
            if column not in row.values:
                raise UserError(
                    f"{row.place}: expected the column {column!r}, found {columns_of(row)}; name the sentence columns "
                    "with 'columns'."
                )
            if value is not None and not isinstance(value, str):
                raise UserError(f"{row.place}: expected text in {column!r}, found {value!r}; correct the row.")
            yield (value or "").strip()


def _default_columns(source: Source, row: Row) -> tuple[str, ...]:
    if "sentence" in row.values:
        return ("sentence",)
    texts = [name for name, value in row.values.items() if isinstance(value, str)]
    if source.dataset is not None and len(texts) == 1:
        return (texts[0],)
    return ("sentence",)
