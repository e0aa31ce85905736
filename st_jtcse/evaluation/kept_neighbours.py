"""Kept neighbours: how far a model leaves plain sentences among those that were next to them
before.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from reprlib import repr as brief

from sentence_transformers import SentenceTransformer

from st_jtcse.data.rows import Source, texts_in
from st_jtcse.errors import UserError
from st_jtcse.evaluation.measured_sets import OwnSet, Statistic
from st_jtcse.evaluation.own_sets import NEAREST
from st_jtcse.evaluation.unique_texts import Vectors
from st_jtcse.evaluation.unlabelled import neighbours_set

KEPT = "kept_neighbours"
# The ten nearest are then half the others at most.
_FEWEST = 2 * NEAREST + 1


def sentences_set(source: Source, name: str) -> OwnSet:
    """Read plain sentences as a set whose neighbours :func:`beside` gives it.

    Raises UserError where they are too few, or one is there twice.
    """
    texts = [text for text in texts_in(source) if text]
    if len(texts) < _FEWEST:
        raise UserError(
            f"{source.label} holds {len(texts)} sentences, and whether each keeps its {NEAREST} "
            f"nearest neighbours needs {_FEWEST}; add {_FEWEST - len(texts)}."
        )
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            raise UserError(
                f"{source.label}: {brief(text)} is there twice, and two alike are neighbours "
                "by any model; keep one."
            )
        seen.add(text)
    digest = hashlib.sha256("".join(f"{text}\n" for text in texts).encode()).hexdigest()
    return OwnSet(name, KEPT, (texts,), len(texts), digest, _unknown)


def beside(own: OwnSet, model: SentenceTransformer) -> OwnSet:
    r"""Return a set of sentences whose score is the share of this model's neighbours that another
    one keeps.

    With N(i) the ten nearest other sentences of sentence i by the other model, N_0(i) by this one:

    .. math:: \frac{1}{n} \sum_i \frac{|N(i) \cap N_0(i)|}{10}
    """
    (vectors,) = own.vectors(model)
    measure = neighbours_set(own.columns[0], vectors, own.sha256).measure
    return replace(own, measure=measure)


def _unknown(vectors: Vectors) -> Statistic:
    raise RuntimeError("neighbours are compared before it is known whose")
