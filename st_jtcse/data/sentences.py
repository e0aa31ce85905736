"""Training sentences, or images in their place, from local files or `datasets.load_dataset`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import pyarrow as pa
from datasets import Dataset, Image, concatenate_datasets

from st_jtcse.data.images import IMAGE, image_column
from st_jtcse.data.rows import Row, Source, checked_rows, read_rows
from st_jtcse.errors import UserError

# Of the different sentences: the fewest, the most that are held out, and their share.
_LEAST, _MOST, _SHARE = 100, 1000, 0.1


@dataclass(frozen=True)
class Sentences:
    """Loaded training sentences."""

    dataset: Dataset  # one column, ``sentence``, of texts or images
    skipped_blank: int  # blank lines and cells that were left out
    sha256: str  # hash of the sentences, newline-separated
    documents: np.ndarray  # of each sentence the number of its document, rising: blank lines and sources part them

    @property
    def are_images(self) -> bool:
        """Whether they are images."""
        return isinstance(self.dataset.features["sentence"], Image)


def load_sentences(sources: Sequence[Source]) -> Sentences:
    """Read sentences, in the order of the sources, and within one by row and then by column.

    Blank ones are skipped and counted; the others are stripped at both ends and otherwise untouched. Where the first
    row holds an image, all of them are read, in the column ``image`` or the first one named.

    Raises:
        UserError: A source is missing or faulty, or holds no sentence, or images cannot be read.
    """
    chunks: list[pa.Array] = []
    digest = hashlib.sha256()
    skipped, documents = 0, [np.zeros(0, np.int64)]
    for number, source in enumerate(sources):
        before = len(chunks)
        rows = read_rows(source)
        first = list(islice(rows, 1))
        if first and isinstance(first[0].values.get((source.columns or (IMAGE,))[0]), dict):
            return _load_images(sources)
        texts = _texts(source, chain(first, rows))
        # Arrow chunks as they are read: a long file is never held as Python strings.
        while block := list(islice(texts, 100_000)):
            found = [text for text in block if text]
            blank = np.array([not text for text in block])
            documents.append((number + skipped + blank.cumsum())[~blank])
            skipped += len(block) - len(found)
            digest.update("".join(f"{text}\n" for text in found).encode())
            chunks += [pa.array(found)] if found else []
        if len(chunks) == before:
            raise UserError(f"{source.label} holds no sentence, only blank lines; give a source with text.")
    dataset = Dataset(pa.table({"sentence": pa.chunked_array(chunks)}))
    return Sentences(dataset, skipped, digest.hexdigest(), np.concatenate(documents))


def _load_images(sources: Sequence[Source]) -> Sentences:
    images = checked_rows(sources, "images", (IMAGE,), lambda row, columns: row.image(columns[0]))
    dataset, digest = image_column(images, "sentence")
    return Sentences(dataset, 0, digest, np.zeros(len(dataset), np.int64))


def hold_out(sentences: Sentences) -> tuple[Sentences, Sentences]:
    """Split training sentences: those to train on, and a tenth of the different ones, at most 1,000, to measure by.

    Which ones follows from the sentences alone. Raises UserError for fewer than 100 different sentences.
    """
    texts = list(dict.fromkeys(sentences.dataset["sentence"][:]))
    if len(texts) < _LEAST:
        raise UserError(
            f"the training text has {len(texts)} different sentences, and 'dev: unlabelled' needs {_LEAST}; add "
            f"{_LEAST - len(texts)}, or give evaluate.dev a set with labels."
        )
    draw = np.random.default_rng(int(sentences.sha256[:16], 16))
    held = {texts[at] for at in draw.choice(len(texts), min(_MOST, int(_SHARE * len(texts))), replace=False)}
    first: dict[str, int] = {}
    for row, text in enumerate(sentences.dataset["sentence"]):
        first.setdefault(text, row)
    kept = [row for row, text in enumerate(sentences.dataset["sentence"]) if text not in held]
    out = [row for text, row in first.items() if text in held]
    return _part(sentences, kept), _part(sentences, out)


def with_next(sentences: Sentences) -> Dataset:
    r"""Return the sentences with a column ``neighbour``: the next one of the document, behind its last the one before.

    Alone in its document a sentence is its own neighbour.
    """
    rows, same = np.arange(len(sentences.documents)), np.diff(sentences.documents) == 0
    after, before = np.append(same, False), np.append(False, same)
    neighbours = sentences.dataset.select(np.where(after, rows + 1, np.where(before, rows - 1, rows)))
    return concatenate_datasets([sentences.dataset, neighbours.rename_column("sentence", "neighbour")], axis=1)


def kept_whole(dataset: Dataset) -> int:
    """Count the sentences of one word, of which no view of words makes another."""
    return sum(len(text.split(maxsplit=1)) < 2 for batch in dataset.iter(10_000) for text in batch["sentence"])


def sentences_sha256(sentences: Dataset) -> str:
    """Return the hash of a data set's sentences, newline-separated."""
    digest = hashlib.sha256()
    for batch in sentences.iter(10_000):
        digest.update("".join(f"{text}\n" for text in batch["sentence"]).encode())
    return digest.hexdigest()


def _part(sentences: Sentences, rows: Sequence[int]) -> Sentences:
    part = sentences.dataset.select(rows)
    return Sentences(part, sentences.skipped_blank, sentences_sha256(part), sentences.documents[rows])


def _texts(source: Source, rows: Iterable[Row]) -> Iterator[str]:
    """Every sentence of a source's rows, stripped; blank ones as empty strings."""
    for row in rows:
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
