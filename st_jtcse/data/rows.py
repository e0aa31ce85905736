"""Rows of local files and of `datasets.load_dataset`, each with the place to name when it is faulty."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from st_jtcse.errors import UserError

SUFFIXES = (".txt", ".jsonl", ".csv", ".parquet")


@dataclass(frozen=True)
class Source:
    """Where rows come from; exactly one of `file` and `dataset` is given.

    Args:
        file: Local text, JSONL, CSV or Parquet file.
        dataset: Hub id or folder for `datasets.load_dataset`.
        config: Configuration of `dataset`.
        split: Split of `dataset`.
        data_files: File inside `dataset`.
        revision: Commit, tag or branch of `dataset`.
        columns: Columns to read; None for the defaults of the reader.
        limit: Keep the first rows only.
    """

    file: Path | None = None
    dataset: str | None = None
    config: str | None = None
    split: str = "train"
    data_files: str | None = None
    revision: str | None = None
    columns: tuple[str, ...] | None = None
    limit: int | None = None

    @property
    def label(self) -> str:
        """The source's name in messages."""
        return str(self.file) if self.file is not None else f"dataset {self.dataset!r} ({self.split})"


@dataclass(frozen=True)
class Row:
    """One row.

    Args:
        place: File and line, or source and row number, both from 1.
        values: Cells by column.
    """

    place: str
    values: dict[str, Any]


def check_columnar(source: Source, rows: str) -> None:
    """Refuse a text file, which has lines only.

    Args:
        source: Where rows are to be read.
        rows: What they are, for the message.

    Raises:
        UserError: The source is a text file.
    """
    if source.file is not None and source.file.suffix == ".txt":
        raise UserError(f"{source.label}: {rows} need columns, found a text file; give .jsonl, .csv or .parquet.")


def columns_of(row: Row) -> str:
    """Name a row's columns for a message."""
    return ", ".join(map(str, row.values)) or "none"


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read a UTF-8 text file line by line, numbered from 1; a line ends at LF or CRLF only.

    Args:
        path: The file.

    Raises:
        UserError: The file is missing, empty, binary or not UTF-8.
    """
    _check_file(path)
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if b"\0" in raw:
                raise UserError(f"{path}:{number}: expected text, found a binary file; give a UTF-8 text file.")
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path}:{number}: expected UTF-8, found the byte 0x{raw[error.start]:02x}; convert the file."
                ) from None
            yield number, line.rstrip("\r\n")


def read_rows(source: Source) -> Iterator[Row]:
    """Read a source's rows, up to its limit.

    Args:
        source: Any source but a plain text file.

    Raises:
        UserError: The source is missing or not of the form its suffix says.
    """
    return islice(_all_rows(source), source.limit)


def _all_rows(source: Source) -> Iterator[Row]:
    if source.file is None:
        yield from _hub_rows(source)
        return
    if source.file.suffix == ".jsonl":
        yield from _jsonl_rows(source.file)
    elif source.file.suffix == ".csv":
        yield from _csv_rows(source.file)
    elif source.file.suffix == ".parquet":
        yield from _parquet_rows(source.file)
    else:
        _check_file(source.file)
        raise UserError(
            f"{source.file}: expected a file ending in {', '.join(SUFFIXES)}, found "
            f"{source.file.suffix or 'no ending'!r}; rename or convert it."
        )


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a file.")
    if not path.is_file():
        raise UserError(f"{path} does not exist; check the path, which starts at the recipe's folder.")
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty; give a file with text.")


def _jsonl_rows(path: Path) -> Iterator[Row]:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except ValueError:
            values = None
        if not isinstance(values, dict):
            raise UserError(f"{path}:{number}: expected a JSON object, found {line[:40]!r}; correct the line.")
        yield Row(f"{path}:{number}", values)


def _csv_rows(path: Path) -> Iterator[Row]:
    numbers: list[int] = []

    def lines() -> Iterator[str]:
        for number, line in read_lines(path):
            numbers.append(number)
            yield line + "\n"

    reader = csv.DictReader(lines(), strict=True)
    try:
        for values in reader:
            if None in values or None in values.values():
                raise UserError(
                    f"{path}:{numbers[-1]}: expected {len(reader.fieldnames or ())} cells, as in the first line; quote "
                    "cells that hold commas."
                )
            yield Row(f"{path}:{numbers[-1]}", values)
    except csv.Error as error:
        raise UserError(f"{path}:{numbers[-1]}: not CSV ({error}); correct the line.") from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_file(path)
    try:
        table = pq.ParquetFile(path)
        number = 0
        for batch in table.iter_batches():
            for values in batch.to_pylist():
                number += 1
                yield Row(f"{path} row {number}", values)
    except pa.ArrowInvalid as error:
        raise UserError(f"{path}: not a Parquet file ({error}); convert it.") from None


def _hub_rows(source: Source) -> Iterator[Row]:
    from datasets import load_dataset

    try:
        rows = load_dataset(
            str(source.dataset),
            source.config,
            split=source.split,
            data_files=source.data_files,
            revision=source.revision,
        )
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{source.label} cannot be loaded ({reason}); check the name, connect to the Hub, or give a local file "
            "with 'file'."
        ) from error
    for number, values in enumerate(rows, 1):
        yield Row(f"{source.label} row {number}", values)
