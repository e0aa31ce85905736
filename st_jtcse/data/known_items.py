"""Known items: queries made of passages, each of which should find the one that it is made of."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from st_jtcse.data.judged_corpus import JudgedCorpus, as_searched

if TYPE_CHECKING:
    from datasets import Dataset

# Words of a query, and the fewest of a passage that gives one.
_QUERY, _PASSAGE = 5, 12
_WORD = re.compile(r"[^\W\d_]{3,}")
_SENTENCE = re.compile(r"(?<=[.!?;:。！？])\s+")  # noqa: RUF001  # East Asian full stops
# Kinds of queries; those of two kinds are looked for in what is left of their passage too.
WORDS, SPAN, SENTENCE, HEADING = "words", "span", "sentence", "heading"


@dataclass(frozen=True)
class KnownItems:
    """Queries of several kinds, and the passages that they are made of.

    Args:
        queries: Texts.
        passages: Of each query, the place of its passage.
        kinds: Of each query, its kind.
        rests: Of each query that is a sentence or a heading, its passage without it; of others an
            empty text.
        overlap: The share of the queries' words that their passages hold, which flatters a search
            by words.
    """

    queries: list[str]
    passages: list[int]
    kinds: list[str]
    rests: list[str]
    overlap: float

    def halves(self) -> tuple[list[int], list[int]]:
        """Return the places of two halves of the queries that share no passage."""
        first = set(list(dict.fromkeys(self.passages))[::2])
        own = [at for at, passage in enumerate(self.passages) if passage in first]
        others = [at for at, passage in enumerate(self.passages) if passage not in first]
        return own, others

    def of(self, places: list[int]) -> KnownItems:
        """Return the queries at some places."""
        return replace(
            self,
            queries=[self.queries[at] for at in places],
            passages=[self.passages[at] for at in places],
            kinds=[self.kinds[at] for at in places],
            rests=[self.rests[at] for at in places],
        )

    def over(self, texts: Sequence[str]) -> JudgedCorpus:
        """Return them as a corpus with queries; a query's other copies of its passage count too."""
        places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            places.setdefault(text, []).append(place)
        # Names whose order is that of the places: of equal scores the later name comes first.
        names = [f"{len(texts) - place:09d}" for place in range(len(texts))]
        grades = [dict.fromkeys(places[texts[passage]], 1) for passage in self.passages]
        digest = hashlib.sha256("\n".join([*self.queries, *texts]).encode()).hexdigest()
        starts = list(range(len(texts)))
        return JudgedCorpus(list(texts), names, starts, self.queries, grades, 0, digest)


class Heading(NamedTuple):
    """What a passage stands below, as a query, and the passage without it."""

    query: str
    rest: str


def passages_of(rows: Dataset, most: int) -> tuple[list[str], dict[int, Heading]]:
    """Return different passages as a search encodes them, the title first, and by place what they
    stand below.

    Args:
        rows: Rows of loaded sentences.
        most: How many, evenly spread.
    """
    first: dict[str, tuple[str | None, str | None]] = {}
    for batch in rows.iter(10_000):
        for text, title, heading in zip(batch["sentence"], batch["title"], batch["heading"]):
            first.setdefault(text, (title, heading))
    step = max(1, -(-len(first) // most))
    passages, headings = [], {}
    for place, (text, (title, heading)) in enumerate(list(first.items())[::step]):
        passages.append(as_searched(title, text))
        if heading:
            headings[place] = Heading(heading, text)
    return passages, headings


def known_items(
    texts: Sequence[str],
    seed: int,
    most: int = 1000,
    headings: Mapping[int, Heading] | None = None,
) -> KnownItems:
    """Make queries of passages: of each its five words of the highest tf-idf, a span of as many
    that are rare together, one of its sentences, and its headings, where no other passage has the
    same.

    Words that no other passage holds count half, because many are slips.

    Args:
        texts: Passages.
        seed: Which passages, and which of their sentences.
        most: From how many passages.
        headings: By place those of passages that stand below some.
    """
    random = np.random.default_rng(seed)
    words = [_WORD.findall(text) for text in texts]
    rare = _rarity(words)
    headings = headings or {}
    alike = Counter(heading.query for heading in headings.values())
    found: list[tuple[str, int, str, str]] = []
    shuffled = map(int, random.permutation(len(texts)))
    long = (place for place in shuffled if len(words[place]) >= _PASSAGE)
    for place in islice(long, most):
        for query, kind, rest in _queries(texts[place], words[place], rare, random):
            found.append((query, place, kind, rest))
        heading = headings.get(place)
        if heading is not None and alike[heading.query] == 1:
            found.append((heading.query, place, HEADING, heading.rest))
    queries = [one[0] for one in found]
    places = [one[1] for one in found]
    kinds = [one[2] for one in found]
    rests = [one[3] for one in found]
    return KnownItems(queries, places, kinds, rests, _overlap(queries, places, texts))


def _queries(
    text: str, words: Sequence[str], rare: dict[str, float], random: np.random.Generator
) -> list[tuple[str, str, str]]:
    """Return the queries that a passage's own words make, their kinds and the rests."""
    sentence = _sentence(text, random)
    return [
        (_words(words, rare), WORDS, ""),
        (_span(words, rare), SPAN, ""),
        (sentence, SENTENCE, text.replace(sentence, " ", 1).strip()),
    ]


def _rarity(words: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the inverse document frequency of each word of the passages."""
    counts = Counter(word for own in words for word in set(map(str.lower, own)))
    rare = {word: math.log(len(words) / count) for word, count in counts.items()}
    slip = math.log(max(2, len(words)) / 2) / 2
    return {word: slip if counts[word] == 1 else found for word, found in rare.items()}


def long_enough(texts: Iterable[str], most: int) -> int:
    """Count the passages that queries can be made of, up to `most`."""
    found = (text for text in texts if len(_WORD.findall(text)) >= _PASSAGE)
    return sum(1 for _ in islice(found, most))


def _words(words: Sequence[str], rare: dict[str, float]) -> str:
    """Return the words of the highest tf-idf, in the passage's order."""
    lowered = [word.lower() for word in words]
    counts = Counter(lowered)
    best = sorted(counts, key=lambda word: -(1 + math.log(counts[word])) * rare[word])[:_QUERY]
    return " ".join(sorted(best, key=lowered.index))


def _span(words: Sequence[str], rare: dict[str, float]) -> str:
    """Return neighbouring words that are rarest together, in whichever order a set has them."""
    lowered = [word.lower() for word in words]
    length = _QUERY + 1
    weights = [
        math.fsum(rare[word] for word in set(lowered[at : at + length]))
        for at in range(len(words) - length + 1)
    ]
    best = int(np.argmax(weights))
    return " ".join(words[best : best + length])


def _sentence(text: str, random: np.random.Generator) -> str:
    """Return a sentence of a passage, of one sentence alone a third of its words."""
    sentences = [part for part in _SENTENCE.split(text) if len(part.split()) >= 4]
    if len(sentences) < 2:
        words = text.split()
        third = max(1, len(words) // 3)
        sentences = [" ".join(words[at : at + third]) for at in (0, third, 2 * third)]
    return sentences[int(random.integers(len(sentences)))]


def _overlap(queries: list[str], places: list[int], texts: Sequence[str]) -> float:
    held = total = 0
    for query, place in zip(queries, places):
        words = _WORD.findall(query.lower())
        held += sum(word in texts[place].lower() for word in words)
        total += len(words)
    return held / max(1, total)
