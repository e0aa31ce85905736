"""Training sentences of data sets that are read while they are trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice

from datasets import Dataset, Features, IterableDataset, Value

from st_jtcse.data.rows import Source
from st_jtcse.data.sentences import Sentences, sentences_sha256, texts_in
from st_jtcse.errors import UserError

_BUFFER = 10_000
_LOOK = 1_000


def look_at_stream(sources: Sequence[Source]) -> Sentences:
    """Return the first sentences of data sets, which stand for the others before any is trained on.

    Raises UserError for a source that is missing or faulty, or holds no sentence.
    """
    streams = tuple(replace(source, streaming=True) for source in sources)
    found = Dataset.from_dict({"sentence": list(islice(_pass(streams), _LOOK))})
    return Sentences(found, 0, sentences_sha256(found), streams)


def stream(sources: Sequence[Source], seed: int) -> IterableDataset:
    """Return the sentences of data sets, pass after pass without an end, in an order that follows from the seed.

    In each pass the files of a set come in an order of its own, and the sentences leave a buffer of 10,000 at random.
    """
    # A tuple: the items of a list are what `datasets` deals out.
    given = {"sources": tuple(sources), "seed": seed}
    features = Features({"sentence": Value("string")})
    return IterableDataset.from_generator(_passes, features, given).shuffle(seed, buffer_size=_BUFFER)


def _passes(sources: Sequence[Source], seed: int) -> Iterator[dict[str, str]]:
    for number in count(seed):
        # Of other files the first rows would be others.
        ordered = [source if source.limit else replace(source, seed=number) for source in sources]
        yield from ({"sentence": text} for text in _pass(ordered))


def _pass(sources: Sequence[Source]) -> Iterator[str]:
    for source in sources:
        text = ""
        for text in filter(None, texts_in(source)):
            yield text
        if not text:
            raise UserError(f"{source.label} holds no sentence, only blank lines; give a source with text.")
