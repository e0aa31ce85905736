"""What of a text a model will not learn from as its user may think: markup, cut texts, broken
words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from st_jtcse.data.known_words import sample_of

_MARKUP = re.compile(r"</?[a-z][a-z0-9]*(\s[^<>]*)?/?>|&(amp|lt|gt|nbsp|quot|#\d+);", re.IGNORECASE)
_CODE = re.compile(
    r"[;{}]\s*$|\)\s*(->[^:]*)?:\s*$|^\s*(#include|import \w|from [\w.]+ import)|\breturn\b.*[;)]$"
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_LONG = 2000  # Characters of a line that is hardly a sentence
_PIECES = 4  # Into which a word is broken that the tokenizer hardly knows
_TOLD = 5  # Words that are named
# Shares of the texts, or of the words, from which on they are remarked.
_MANY, _SOME, _FEW = 0.2, 0.05, 0.02
_TEXTS = "st-train texts FOLDER -o FILE cuts documents into passages"


def text_remarks(tokenizer: Any, texts: Sequence[str], longest: float | None) -> list[str]:
    """Return sentences about a sample of a corpus, each with a way out; none where all is well.

    Args:
        tokenizer: The model's; None where there is none.
        texts: The corpus.
        longest: How many tokens the model reads of a text; None for all.
    """
    sample = sample_of(texts)
    return [*_forms(sample), *_of_tokens(tokenizer, sample, longest)]


def _forms(sample: list[str]) -> Iterator[str]:
    found = {
        "hold markup": (sum(bool(_MARKUP.search(text)) for text in sample), _MANY),
        "look like code": (sum(bool(_CODE.search(text)) for text in sample), _MANY),
        f"are longer than {_LONG} characters": (
            sum(len(text) > _LONG for text in sample),
            _SOME,
        ),
    }
    for told, (count, least) in found.items():
        if count > least * len(sample):
            share = 100 * count / len(sample)
            yield f"{share:.0f} % of the lines {told}; {_TEXTS}, without markup"


def _of_tokens(tokenizer: Any, sample: list[str], longest: float | None) -> Iterator[str]:
    if not callable(getattr(tokenizer, "tokenize", None)):
        return
    if longest is not None:
        rows = tokenizer(sample, truncation=False, verbose=False)["input_ids"]
        lengths = [len(row) for row in rows]
        cut = sum(length > longest for length in lengths)
        lost = sum(max(0, length - longest) for length in lengths) / max(1, sum(lengths))
        if cut > _SOME * len(sample):
            yield (
                f"{100 * cut / len(sample):.0f} % of the texts are longer than the {longest:.0f} "
                f"tokens that the model reads, and {100 * lost:.0f} % of all tokens are lost; "
                f"raise model.max_seq_length if the model can, or cut the texts ({_TEXTS})"
            )
    words = Counter(word for text in sample for word in _WORD.findall(text))
    broken = Counter(
        {word: count for word, count in words.items() if len(tokenizer.tokenize(word)) >= _PIECES}
    )
    share = broken.total() / max(1, words.total())
    if share > _FEW:
        named = ", ".join(word for word, _ in broken.most_common(_TOLD))
        yield (
            f"{100 * share:.0f} % of the words are broken into {_PIECES} pieces or more, most "
            f"often {named}; a model whose vocabulary has them knows them better"
        )
