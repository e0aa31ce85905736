"""Rows of local files and of `datasets.load_dataset`, checked; each has the place to name when it
is faulty.

The libraries behind them take seconds to import, and text, CSV and JSONL need none.
"""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from reprlib import repr as brief
from typing import Any, NamedTuple, TypeVar

from st_jtcse.corpus_folder import is_wildcard
from st_jtcse.data.document_text import documents_in, is_document
from st_jtcse.data.passages import read_passages
from st_jtcse.errors import DataUnavailable, UserError
from st_jtcse.table_files import DELIMITER_NAMES, delimiter_of, other_kind
from st_jtcse.wording import absent

logger = logging.getLogger(__name__)

_TOLD = 5
_BUFFER = 10_000  # Rows of a stream that are mixed.
# Levels of JSON: far above any row, far below what a parser's stack holds.
_DEEPEST = 500
_QUOTED, _BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"'), re.compile(rb"[\[\]{}]")
_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
# The halves of characters beyond U+FFFF; alone, they are no text.
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
# Columns of a file of passages, as `st-train texts` writes it and search has it.
_PASSAGE = {"_id", "text"}
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True)
class Source:
    """Where rows come from; exactly one of `file` and `dataset` is given."""

    # Local text, JSONL, CSV or Parquet file, or folder of images.
    file: Path | None = None
    dataset: str | None = None  # Hub id or folder for `datasets.load_dataset`
    config: str | None = None  # configuration of `dataset`
    split: str = "train"  # split of `dataset`
    # split of `dataset`, of labelled images, that a classifier is fitted on
    fit_split: str | None = None
    data_files: str | None = None  # file inside `dataset`
    revision: str | None = None  # commit, tag or branch of `dataset`
    # Columns to read; None for the defaults of the reader.
    columns: tuple[str, ...] | None = None
    # The columns that a reader expects, each with what the source calls it
    called: tuple[tuple[str, str], ...] = ()
    limit: int | None = None  # how many of the first rows to keep; None for all
    streaming: bool = False  # whether `dataset` is read as its rows are asked for
    # What the order of its rows follows from then; None for their own.
    seed: int | None = None
    corpus: Path | None = None  # documents that `file` has queries or judgements of
    # The queries, where `file` has judgements of them by id.
    queries: Path | None = None

    @property
    def label(self) -> str:
        """The source's name in messages."""
        if self.file is not None:
            return str(self.file)
        return f"dataset {self.dataset!r} ({self.split})"

    @property
    def expected(self) -> tuple[str, ...] | None:
        """The columns that it names, as a reader calls them; None where it names none."""
        return self.columns or tuple(name for name, _ in self.called) or None

    @property
    def is_text(self) -> bool:
        """Whether it is a text file, which has lines only."""
        return self.file is not None and self.file.suffix == ".txt"


@dataclass(frozen=True)
class Row:
    """A row's cells by column, and its place in messages: file and line, or source and row number,
    both from 1.
    """

    place: str
    values: dict[str, Any]

    @property
    def columns(self) -> str:
        """Its columns in messages."""
        return ", ".join(map(str, self.values)) or "none"

    def text(self, name: str) -> str:
        """Return a cell's text, stripped; what is no text is refused."""
        text = self.values[name]
        if not isinstance(text, str):
            raise UserError(
                f"{self.place}: expected text in {name!r}, found {brief(text)}; correct the row."
            )
        return text.strip()

    def image(self, name: str) -> dict[str, Any]:
        """Return a cell's image as `datasets` has it, a file's path or bytes; one that cannot be
        read is refused.
        """
        image = self.values[name]
        if not isinstance(image, dict):
            raise UserError(
                f"{self.place}: expected an image in {name!r}, found {brief(image)}; correct the "
                "row."
            )
        from datasets import Image

        try:
            content = Path(image["path"]).read_bytes() if image["bytes"] is None else image["bytes"]
            Image().decode_example({"path": None, "bytes": content})
        except ImportError:
            raise UserError(
                "Images are read by Pillow, found none; pip install 'st-jtcse[images]'."
            ) from None
        except Exception as error:  # As many as there are formats.
            raise UserError(
                f"{self.place}: the image cannot be read ({_short(error)}); replace or remove it."
            ) from None
        return image


def checked_rows(
    sources: Sequence[Source],
    what: str,
    default: Sequence[str],
    parse: Callable[[Row, Sequence[str]], _Parsed | None],
    hint: str = " or name the columns with 'columns'",
) -> Iterator[_Parsed]:
    """Read rows with columns, those of `default` where a source names none, and parse each; None
    leaves a row out.

    What `parse` finds wrong is told at the end, up to five rows at once; `what` the rows are is for
    messages, as is the `hint` what else than adding it helps where a column is missing.
    """
    faults: list[str] = []
    for source in sources:
        columns = source.columns or default
        if source.is_text:
            raise UserError(
                f"{source.label}: {what} need columns, found a text file; give .jsonl, .csv or "
                ".parquet."
            )
        for row in read_rows(source):
            if missing := [name for name in columns if name not in row.values]:
                wanted = f"expected the columns {', '.join(columns)}, found {row.columns}"
                kind = None if source.columns else other_kind(row.values, columns)
                way = f". {kind}" if kind else f"; add {missing[0]!r}"
                raise UserError(f"{row.place}: {wanted}{way}{hint}.")
            try:
                value = parse(row, columns)
            except UserError as error:
                faults += error.faults
                continue
            if value is not None:
                yield value
    if faults:
        left = len(faults) - _TOLD
        more = [f"{sources[0].label}: and {left} more rows like these."] if left > 0 else []
        raise UserError(*faults[:_TOLD], *more)


def texts_of(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    """Return a row's texts, stripped; one that is no text or empty is refused."""
    for name in names:
        if not row.text(name):
            raise UserError(f"{row.place}: {name!r} is empty; fill it or remove the row.")
    return tuple(row.text(name) for name in names)


def number(value: Any) -> float | None:
    """Read a finite number, written as one or as text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def in_range(row: Row, score: float, score_range: tuple[float, float]) -> float:
    """Return a row's score; one outside the range of lowest and highest score is refused."""
    low, high = score_range
    if not low <= score <= high:
        outside = f"the score {score:g} is outside {low:g} to {high:g}"
        raise UserError(f"{row.place}: {outside}; correct it or set score_range.")
    return score


def rows_sha256(rows: Iterable[Sequence[Any]]) -> str:
    """Return the hash of rows as JSON lines."""
    return hashlib.sha256("".join(json.dumps(row) + "\n" for row in rows).encode()).hexdigest()


def texts_in(source: Source) -> Iterator[str]:
    """Yield every sentence of a source, stripped; blank ones as empty strings."""
    return (cell.text for cell in cells_in(source))


class Cell(NamedTuple):
    """A sentence, stripped, and of a passage its title and all of its headings."""

    text: str
    title: str | None = None
    heading: str | None = None


def cells_in(source: Source) -> Iterator[Cell]:
    """Yield every sentence of a source with what it stands below."""
    for row in read_rows(source):
        columns = _columns(source, row)
        if not columns:
            yield Cell("")
        title, heading = _headings(row)
        for column in columns:
            if column not in row.values:
                raise UserError(
                    f"{row.place}: expected the column {column!r}, found {row.columns}; name the "
                    "sentence columns with 'columns'."
                )
            text = "" if row.values[column] is None else row.text(column)
            yield Cell(text, title, heading)


def _headings(row: Row) -> tuple[str | None, str | None]:
    """Return the title of a passage and all of its headings, each once; None of other rows."""
    if not row.values.keys() >= _PASSAGE:
        return None, None
    title, below = row.values.get("title"), row.values.get("headings")
    if not isinstance(title, str) or not title.strip():
        return None, None
    others = below if isinstance(below, list) else []
    headings = [title.strip(), *(each for each in others if isinstance(each, str))]
    return headings[0], " ".join(dict.fromkeys(headings))


def _columns(source: Source, row: Row) -> tuple[str, ...]:
    """Columns of a row's sentences; of a data set with one text column and none called
    ``sentence``, that one, and none of a row that has no text there; of a file of passages
    ``text``.
    """
    if source.columns and not source.is_text:
        return source.columns
    if source.dataset is not None and "sentence" not in row.values:
        texts = [name for name, value in row.values.items() if isinstance(value, str)]
        if not texts and None in row.values.values():
            return ()
        if len(texts) == 1:
            return (texts[0],)
        return ("sentence",)
    if source.file is not None and "sentence" not in row.values and _PASSAGE <= row.values.keys():
        return ("text",)
    return ("sentence",)


def read_rows(source: Source) -> Iterator[Row]:
    """Read a source's rows, up to its limit.

    A text file's lines are the column ``sentence``; a folder's images ``image``, with ``label``,
    their own folder; a folder's documents are passages, with the columns of
    :class:`st_jtcse.data.passages.Passage` and the text as ``sentence`` too.
    """
    rows = _hub_rows(source) if source.file is None else _file_rows(source.file)
    if source.called:
        rows = _renamed(rows, source.called)
    return islice(rows, source.limit)


def _renamed(rows: Iterable[Row], called: Sequence[tuple[str, str]]) -> Iterator[Row]:
    """Yield rows whose columns are called as a reader expects them."""
    own_names = {own for _, own in called}
    for row in rows:
        for expected, own in called:
            if own not in row.values:
                raise UserError(
                    f"{row.place}: expected the column {own!r}, as 'columns' calls {expected!r}, "
                    f"found {row.columns}; correct 'columns'."
                )
        values = {expected: row.values[own] for expected, own in called}
        others = {name: row.values[name] for name in row.values if name not in own_names}
        yield Row(row.place, {**others, **values})


def _file_rows(path: Path) -> Iterator[Row]:
    readers = {
        ".txt": _text_rows,
        ".jsonl": _jsonl_rows,
        ".csv": _csv_rows,
        ".parquet": _parquet_rows,
        ".tsv": _csv_rows,
    }
    if path.is_dir() and (images := images_in(path)):
        return _image_rows(path, images)
    if path.is_dir() or is_wildcard(path) or (path.is_file() and is_document(path)):
        return _document_rows(path)
    if not path.is_file():
        raise UserError(absent(path.absolute()))
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty; give a file with text.")
    if path.suffix == ".json":
        raise UserError(
            f"{path}: expected JSONL, an object on each line such as "
            '{"sentence1": "...", "sentence2": "...", "score": 3.5}, found .json; write it so, and '
            "call it .jsonl."
        )
    if path.suffix not in readers:
        raise UserError(
            f"{path}: expected a file ending in {', '.join(readers)}, found "
            f"{path.suffix or 'no ending'!r}; rename or convert it."
        )
    return readers[path.suffix](path)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a UTF-8 file, numbered from 1; a line ends at LF or CRLF only."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if b"\0" in raw:
                raise UserError(
                    f"{path}:{number}: expected text, found a binary file; give a UTF-8 text file."
                )
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path}:{number}: expected UTF-8, found the byte 0x{raw[error.start]:02x}; "
                    "convert the file."
                ) from None
            yield number, line.rstrip("\r\n")


def _image_rows(folder: Path, images: Iterable[Path]) -> Iterator[Row]:
    for path in images:
        label = None if path.parent == folder else path.parent.name
        yield Row(str(path), {"image": {"path": str(path), "bytes": None}, "label": label})


def images_in(folder: Path) -> list[Path]:
    """Return a folder's images, sorted; none where they lie beside documents, of which one alone
    does not count.
    """
    images = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _IMAGES)
    if images and len(documents_in(folder)) > 1:
        return []
    return images


def _document_rows(place: Path) -> Iterator[Row]:
    for passage in read_passages(place):
        yield Row(passage.name, {"sentence": passage.text, **passage.row})


def _text_rows(path: Path) -> Iterator[Row]:
    return (Row(f"{path}:{number}", {"sentence": line}) for number, line in _lines(path))


def _jsonl_rows(path: Path) -> Iterator[Row]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        values, why = None, ""
        try:
            values = json.loads(line)
            if _HALF.search(line):
                json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            values, why = None, f" with {error.object[error.start : error.end]!a}, half a character"
        except json.JSONDecodeError:
            pass
        except (ValueError, RecursionError):
            why = " with too many digits or levels"
        if not isinstance(values, dict):
            raise UserError(
                f"{path}:{number}: expected a JSON object, found {line[:40]!r}{why}; correct the "
                "line."
            )
        yield Row(f"{path}:{number}", values)


def _csv_rows(path: Path) -> Iterator[Row]:
    delimiter = delimiter_of(next(_lines(path))[1])
    parts = DELIMITER_NAMES[delimiter]
    lines = (line + "\n" for _, line in _lines(path))
    table = csv.DictReader(lines, strict=True, delimiter=delimiter)
    is_told = False
    try:
        for values in table:
            if None in values or None in values.values():
                raise UserError(
                    f"{path}:{table.line_num}: expected {len(table.fieldnames or ())} cells, as in "
                    f"the first line; quote cells that hold {parts}."
                )
            yield Row(f"{path}:{table.line_num}", values)
            if delimiter != "," and not is_told:
                # Not before somebody goes on: the columns of the first row may be other ones.
                logger.info("%s: %s part the cells", path, parts)
                is_told = True
    except csv.Error as error:
        raise UserError(
            f"{path}:{table.reader.line_num}: not CSV ({error}); correct the line."
        ) from None


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = (
            values for batch in pq.ParquetFile(path).iter_batches() for values in batch.to_pylist()
        )
        for number, values in enumerate(rows, 1):
            yield Row(f"{path} row {number}", values)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a Parquet file ({_short(error)}); convert it.") from None


def _hub_rows(source: Source) -> Iterator[Row]:
    from datasets import Image, load_dataset

    _check_depth(source)
    where = {"split": source.split, "data_files": source.data_files, "revision": source.revision}
    try:
        rows = load_dataset(str(source.dataset), source.config, streaming=source.streaming, **where)
        if source.seed is not None:
            if source.limit:
                rows = rows.take(source.limit)
            rows = rows.shuffle(source.seed, buffer_size=_BUFFER)
    except Exception as error:  # As many as there are formats, here and below.
        raise _not_loaded(source, error) from error
    # A stream of text or CSV does not know its features before it is read.
    for name, feature in (rows.features or {}).items():
        if isinstance(feature, Image):  # Read where a row is at hand to be named.
            rows = rows.cast_column(name, Image(decode=False))
    number = 0
    try:
        for number, values in enumerate(rows, 1):
            yield Row(f"{source.label} row {number}", values)
    except Exception as error:
        raise _not_loaded(source, error, f" after row {number}" if number else "") from error


def _not_loaded(source: Source, error: Exception, where: str = "") -> UserError:
    cause = error.__cause__ or error
    reason = _short(cause) or type(cause).__name__
    kind = DataUnavailable if isinstance(error, ConnectionError) else UserError
    return kind(
        f"{source.label} cannot be loaded{where} ({reason}); check the name, connect to the Hub, "
        "or give a local file with 'file'."
    )


def _check_depth(source: Source) -> None:
    """Refuse local JSON so deep that the parser behind `datasets` would overrun its stack, and end
    the process.
    """
    folder, pattern = "", source.data_files or ""
    if source.dataset != "json":
        folder = glob.escape(str(source.dataset))
        pattern = os.path.join(folder, source.data_files or "**/*.json*")
    for name in glob.glob(pattern, recursive=True):
        if not os.path.isfile(name) or (folder and ".json" not in name):
            continue
        with gzip.open(name) if name.endswith(".gz") else open(name, "rb") as file:
            _check_depth_of(name, file)


def _check_depth_of(name: str, lines: Iterable[bytes]) -> None:
    depth = 0
    for number, line in enumerate(lines, 1):
        opened = line.count(b"[") + line.count(b"{")
        closed = line.count(b"]") + line.count(b"}")
        # As in nearly all lines of JSONL: no need to look closer.
        if opened == closed < _DEEPEST:
            continue
        for mark in _BRACKET.findall(_QUOTED.sub(b"", line)):
            depth += 1 if mark in b"[{" else -1
            if depth > _DEEPEST:
                raise UserError(
                    f"{name}:{number}: expected at most {_DEEPEST} levels, found more; flatten it."
                )


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
