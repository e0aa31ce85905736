"""Training sentences, or images in their place: held, or read from the disk, or streamed while they
are trained on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, Image, IterableDataset, Value
from datasets.table import MemoryMappedTable
from filelock import FileLock

from st_jtcse.data.arrow_files import (
    DEFAULT_CACHE,
    claim_partial,
    is_whole,
    last_words,
    remove_working_folder,
    working_folder,
    write_errors_told,
    write_whole,
)
from st_jtcse.data.column_names import IMAGE
from st_jtcse.data.images import image_column
from st_jtcse.data.rows import Source, cells_in, checked_rows, images_in, read_rows, texts_in
from st_jtcse.errors import UserError
from st_jtcse.hashing import sha256
from st_jtcse.ownership import check_lock

logger = logging.getLogger(__name__)

# Of the different sentences: the fewest, the most that are held out, and their share.
_LEAST, _MOST, _SHARE = 100, 1000, 0.1
# Bytes of files from which on their sentences are converted once, and read from the disk.
_LARGE = 16 << 20
# Bytes a sentence in memory while sentences are held out, as measured: its number and its place
# among the others, four times in all, and what numpy makes of them to compare. And the row that is
# kept.
HELD_OUT_PEAK, HELD_OUT_ROW = 85, 8
_LOOK = 1_000  # Sentences of a stream that are read before any is trained on
_SCHEMA = pa.schema(
    {
        "sentence": pa.string(),
        "document": pa.int64(),
        "title": pa.string(),
        "heading": pa.string(),
    }
)


@dataclass(frozen=True)
class Sentences:
    """Loaded training sentences."""

    # Columns ``sentence``, of texts or images, and ``document``: the number of its document,
    # rising; blank lines and sources part them. Of passages ``title`` and ``heading`` too: the
    # headings that they stand below, the title first; null of other text
    rows: Dataset
    skipped_blank: int  # blank lines and cells that were left out
    sha256: str  # hash of the sentences, newline-separated
    # Data sets that are read while they are trained on; the sentences are their first, without
    # documents
    streams: tuple[Source, ...] = ()
    memory: mmap.mmap | None = None  # where the rows of large files are mapped

    @property
    def dataset(self) -> Dataset:
        """The sentences as the one column ``sentence``."""
        return self.rows.select_columns("sentence")

    def release(self) -> None:
        """Give back the memory of what was read of large files; a system else keeps megabytes
        around each row.
        """
        if self.memory is not None and hasattr(self.memory, "madvise"):
            self.memory.madvise(mmap.MADV_DONTNEED)

    def stream(self, seed: int) -> IterableDataset | None:
        """Return the sentences of streams, pass after pass without an end, in an order of the seed;
        None without any.

        In each pass the files of a data set come in another order, and sentences leave a buffer at
        random.
        """
        if not self.streams:
            return None
        # A tuple: the items of a list are what `datasets` deals out.
        given = {"sources": self.streams, "seed": seed}
        features = Features({"sentence": Value("string")})
        return IterableDataset.from_generator(_passes, features, given)

    @property
    def modality(self) -> str:
        """``"text"``, or ``"image"`` in its place."""
        if isinstance(self.dataset.features["sentence"], Image):
            return "image"
        return "text"

    @property
    def count(self) -> int | None:
        """How many there are; None where they are read without an end."""
        return None if self.streams else len(self.rows)

    @property
    def left_out(self) -> dict[str, int | None]:
        """What records say of their reading."""
        if self.streams:
            return {"sentences": None}
        return {"blank_lines_skipped": self.skipped_blank}


def load_sentences(
    sources: Sequence[Source], cache_dir: Path | None = None, streaming: bool = False
) -> Sentences:
    """Read sentences, in the order of the sources, and within one by row and then by column.

    Blank ones are skipped and counted; the others are stripped at both ends and otherwise
    untouched. Large files are converted once into a file of `cache_dir`, None for the default,
    which is memory-mapped then and ever after. Of data sets that are `streaming` only the first
    sentences are read. Where the first row holds an image, all of them are read, in the column
    ``image`` or the first one named.

    Raises:
        UserError: A source is missing or faulty, or holds no sentence, or images cannot be read.
    """
    if streaming:
        return _first_of(sources)
    if _holds_images(sources[0]):
        return _load_images(sources)
    reader = _Reader(sources)
    files = [source.file for source in sources if source.file is not None and source.file.is_file()]
    size = sum(file.stat().st_size for file in files)
    if len(files) < len(sources) or not is_converted(size):
        table, found = pa.Table.from_batches(reader.batches(), _SCHEMA), reader.found()
        # Without a fingerprint of its own, all of it would be pickled for one.
        return Sentences(Dataset(table, fingerprint=found[1][:16]), *found)
    read = []
    for path, source in zip(files, sources):
        columns = source.columns or source.called or None
        read.append((sha256(path), path.suffix, columns, source.limit))
    settings = json.dumps({"text": read, "large": 2})
    key = hashlib.sha256(settings.encode()).hexdigest()[:16]
    final = (cache_dir or DEFAULT_CACHE) / f"text-{key}.arrow"
    if not is_whole(final, settings):
        _convert(reader, files, final, settings)
    with final.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    table = MemoryMappedTable(pa.ipc.open_stream(pa.py_buffer(memory)).read_all(), str(final))
    skipped, digest = last_words(final)
    return Sentences(Dataset(table, fingerprint=key), skipped, digest, memory=memory)


def _convert(reader: _Reader, files: Sequence[Path], final: Path, settings: str) -> None:
    """Write what the files hold; of several processes one does, and the others wait for it."""
    lock = final.with_suffix(".lock")
    with write_errors_told(final.parent):
        final.parent.mkdir(parents=True, exist_ok=True)
        check_lock(lock)
        with FileLock(lock):
            if is_whole(final, settings):
                return
            told = ", ".join(map(str, files))
            logger.info("text: converting %s, kept in %s", told, final.parent)
            reader.write(final, settings)


def _first_of(sources: Sequence[Source]) -> Sentences:
    streams = tuple(replace(source, streaming=True) for source in sources)
    found = list(islice(_pass(streams), _LOOK))
    if not found:
        raise UserError(
            f"{sources[0].label} holds no sentence, only blank lines; give a source with text."
        )
    rows = Dataset.from_dict({"sentence": found})
    return Sentences(rows, 0, sentences_sha256(rows), streams)


def _passes(sources: Sequence[Source], seed: int) -> Iterator[dict[str, str]]:
    for number in count(seed):
        found = False
        for text in _pass([replace(source, seed=number) for source in sources]):
            found = True
            yield {"sentence": text}
        if not found:
            # Files that were emptied since: an endless search for a sentence.
            raise UserError(f"{sources[0].label} holds no sentence any more; restore its text.")


def _pass(sources: Sequence[Source]) -> Iterator[str]:
    return (text for source in sources for text in texts_in(source) if text)


class _Reader:
    """Reads sources as Arrow batches, a long one never as Python strings, and counts and hashes on
    the way.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources, self._skipped, self._digest = sources, 0, hashlib.sha256()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the sentences and their documents' numbers."""
        for number, source in enumerate(self._sources):
            cells, any_text = cells_in(source), False
            while block := list(islice(cells, 100_000)):
                kept = [cell for cell in block if cell.text]
                found = [cell.text for cell in kept]
                blank = np.array([not cell.text for cell in block])
                documents = (number + self._skipped + blank.cumsum())[~blank]
                self._skipped += len(block) - len(found)
                self._digest.update("".join(f"{text}\n" for text in found).encode())
                any_text |= bool(found)
                columns = [
                    pa.array(found, pa.string()),
                    documents,
                    pa.array([cell.title for cell in kept], pa.string()),
                    pa.array([cell.heading for cell in kept], pa.string()),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
            if not any_text:
                raise UserError(
                    f"{source.label} holds no sentence, only blank lines; give a source with text."
                )

    def write(self, final: Path, settings: str) -> None:
        """Write all of it as a file of the cache."""
        folder = working_folder(final)
        try:
            partial = claim_partial(folder, "text")
            write_whole(partial, final, settings, _SCHEMA, self.batches(), self.found)
        finally:
            remove_working_folder(folder)

    def found(self) -> tuple[int, str]:
        """Return how many blank ones there were, and the others' hash."""
        return self._skipped, self._digest.hexdigest()


def _holds_images(source: Source) -> bool:
    if source.file is not None and source.file.suffix != ".parquet":
        if not source.file.is_dir() or not images_in(source.file):
            return False
    first = next(read_rows(source), None)
    return first is not None and isinstance(first.values.get((source.columns or (IMAGE,))[0]), dict)


def _load_images(sources: Sequence[Source]) -> Sentences:
    images = checked_rows(sources, "images", (IMAGE,), lambda row, columns: row.image(columns[0]))
    dataset, digest = image_column(images, "sentence")
    return Sentences(dataset.add_column("document", np.zeros(len(dataset), np.int64)), 0, digest)


def hold_out(sentences: Sentences) -> tuple[Sentences, Sentences]:
    """Split training sentences: those to train on, and a tenth of the different ones, at most
    1,000, to measure by.

    Which ones follows from the sentences alone. Raises UserError for fewer than 100 different
    sentences.
    """
    texts = (text for rows in sentences.dataset.iter(10_000) for text in rows["sentence"])
    # A number each in place of the text: two of ten million texts share one in one of 300,000
    # cases.
    numbers = np.fromiter(map(hash, texts), np.int64, len(sentences.dataset))
    different, first = np.unique(numbers, return_index=True)
    in_order = np.argsort(first)
    if len(first) < _LEAST:
        raise UserError(
            f"the training text has {len(first)} different sentences, and 'dev: unlabelled' needs "
            f"{_LEAST}; add {_LEAST - len(first)}, or give evaluate.dev a set with labels."
        )
    draw = np.random.default_rng(int(sentences.sha256[:16], 16))
    held = in_order[draw.choice(len(first), held_count(len(first)), replace=False)]
    kept = np.flatnonzero(~np.isin(numbers, different[held]))
    return _part(sentences, kept), _part(sentences, np.sort(first[held]))


def held_count(different: int) -> int:
    """Return how many of so many different sentences :func:`hold_out` holds out."""
    return min(_MOST, int(_SHARE * different))


def is_converted(size: float) -> bool:
    """Whether files of so many bytes are read from the disk, not held in memory."""
    return size >= _LARGE


def sampled(sentences: Sentences, count: int) -> Sentences:
    """Return so many of the sentences, in their order; all, where there are no more.

    Which ones follows from the sentences alone.
    """
    total = len(sentences.rows)
    if total <= count:
        return sentences
    draw = np.random.default_rng(int(sentences.sha256[:16], 16))
    return _part(sentences, np.sort(draw.choice(total, count, replace=False)))


def without(anchors: Sentences, held_out: Sentences) -> Sentences:
    """Return general sentences but those that are held out; raises UserError where none is left."""
    texts = set(held_out.dataset["sentence"][:])
    kept = [row for row, text in enumerate(anchors.dataset["sentence"]) if text not in texts]
    if not kept:
        raise UserError(
            "every sentence of 'anchors' is held out of the training text to measure by; name "
            "others."
        )
    return _part(anchors, np.array(kept))


def sentences_sha256(sentences: Dataset) -> str:
    """Return the hash of a data set's sentences, newline-separated."""
    digest = hashlib.sha256()
    for batch in sentences.iter(10_000):
        digest.update("".join(f"{text}\n" for text in batch["sentence"]).encode())
    return digest.hexdigest()


def _part(sentences: Sentences, rows: np.ndarray) -> Sentences:
    part = sentences.rows.select(rows)
    return replace(sentences, rows=part, sha256=sentences_sha256(part))
