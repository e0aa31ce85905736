"""A measure without labels: how far a model has the neighbourhoods of sentences that it was not
trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from st_jtcse.evaluation.measured_sets import OwnSet, Statistic
from st_jtcse.evaluation.own_sets import NEIGHBOURS, nearest_others
from st_jtcse.evaluation.unique_texts import Vectors


def neighbours_set(texts: Sequence[str], reference: Vectors, sha256: str) -> OwnSet:
    r"""Return the set whose score is how many of their nearest neighbours a model's vectors share
    with others.

    With N(i) the k = 10 nearest other texts by the model, N*(i) those by the reference:

    .. math:: \frac{1}{n} \sum_i \frac{|N(i) \cap N^*(i)|}{k}

    Of fewer than 21 texts k is half the others: if all were neighbours, every model would share
    them all.

    Args:
        texts: The texts.
        reference: A unit vector of each, (n, H): the teachers', drawn to their neighbours among the
            training text.
        sha256: Hash of the texts.
    """
    count = min(NEIGHBOURS, (len(texts) - 1) // 2)
    measure = partial(_shared, nearest_others(reference, count))
    return OwnSet("unlabelled", "shared_neighbours", (texts,), len(texts), sha256, measure)


def _shared(expected: npt.NDArray[np.int64], texts: Vectors) -> Statistic:
    found = nearest_others(texts, expected.shape[1])
    shares = (found[:, :, None] == expected[:, None, :]).any(axis=2).mean(axis=1)
    return lambda items: float(shares[items].mean())
