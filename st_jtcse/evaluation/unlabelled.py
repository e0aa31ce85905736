"""A measure without labels: how well a model finds its way among training sentences that are held out."""

from __future__ import annotations

import hashlib

import numpy as np

from st_jtcse.data import Sentences
from st_jtcse.errors import UserError
from st_jtcse.evaluation.own_sets import OwnSet, Statistic
from st_jtcse.evaluation.unique_texts import Vectors

LEAST, MOST, SHARE = 100, 1000, 0.1


def hold_out(sentences: Sentences) -> tuple[Sentences, OwnSet]:
    """Return training sentences without a tenth of them, at most 1,000, and the set that these make.

    Which ones follows from the sentences alone. Raises UserError for fewer than 100 different sentences.
    """
    texts = list(dict.fromkeys(sentences.dataset["sentence"][:]))
    if len(texts) < LEAST:
        raise UserError(
            f"The training text has {len(texts)} different sentences, and choosing without labels needs {LEAST}; add "
            f"{LEAST - len(texts)}, or give evaluate.dev."
        )
    draw = np.random.default_rng(int(sentences.sha256[:16], 16))
    count = min(MOST, int(SHARE * len(texts)))
    held = sorted(draw.choice(len(texts), count, replace=False))
    chosen = [texts[at] for at in held]
    out = set(chosen)
    rows = [row for row, text in enumerate(sentences.dataset["sentence"]) if text not in out]
    kept = sentences.dataset.select(rows)
    digest = hashlib.sha256("".join(f"{text}\n" for text in kept["sentence"][:]).encode()).hexdigest()
    return Sentences(kept, sentences.skipped_blank, digest), unlabelled_set(chosen, draw)


def unlabelled_set(texts: list[str], draw: np.random.Generator) -> OwnSet:
    """TO BE SETTLED."""
    halves = [text.split() for text in texts]
    first = [" ".join(words[: max(1, len(words) // 2)]) for words in halves]
    second = [" ".join(words[max(1, len(words) // 2) :]) or text for words, text in zip(halves, texts)]
    digest = hashlib.sha256("".join(f"{text}\n" for text in texts).encode()).hexdigest()
    return OwnSet("unlabelled", "unlabelled", (first, second), len(texts), digest, _found_again)


def _found_again(first: Vectors, second: Vectors) -> Statistic:
    cosines = first @ second.T
    ranks = 1 + (cosines > np.diag(cosines)[:, None]).sum(axis=1)
    return lambda items: float((1 / ranks[items]).mean())
