"""A measure without labels: how far a model has the neighbourhoods of sentences that it was not
trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from sentence_transformers import SentenceTransformer

from st_jtcse.evaluation.measured_sets import OwnSet, Statistic
from st_jtcse.evaluation.own_sets import NEIGHBOURS, OwnSetEvaluator, nearest_others
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


def agreed_set(texts: Sequence[str], candidates: Sequence[Vectors], sha256: str) -> OwnSet:
    """Return the set whose score is how many nearest neighbours a model shares with what several
    candidates, itself among them, agree on.

    The reference of :func:`neighbours_set` is here the mean of the candidates' cosines.

    Args:
        texts: The texts.
        candidates: Each candidate's unit vectors of the texts, (n, H_k), drawn to their
            neighbours.
        sha256: Hash of the texts.
    """
    reference = np.concatenate(candidates, axis=1) / len(candidates) ** 0.5
    return neighbours_set(texts, reference, sha256)


class RememberingEvaluator(OwnSetEvaluator):
    """An evaluator of a set of one column that does not encode for a model whose vectors are known.

    Args:
        own: The set.
        name: Prefix of the metric.
        recall: From a model to its unit vectors of the column; None where they are not known.
        batch_size: Texts encoded at once.
    """

    def __init__(
        self,
        own: OwnSet,
        name: str,
        recall: Callable[[SentenceTransformer], Vectors | None],
        batch_size: int = 64,
    ) -> None:
        super().__init__(own, name, batch_size)
        self._recall = recall

    def __call__(
        self,
        model: SentenceTransformer,
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """Evaluate the model."""
        vectors = self._recall(model)
        if vectors is None:
            return super().__call__(model, output_path, epoch, steps)
        score = self.own.score(self.own.measure(vectors))
        return self.prefix_name_to_metrics({self.own.metric: score}, self.name)


def _shared(expected: npt.NDArray[np.int64], texts: Vectors) -> Statistic:
    found = nearest_others(texts, expected.shape[1])
    shares = (found[:, :, None] == expected[:, None, :]).any(axis=2).mean(axis=1)
    return lambda items: float(shares[items].mean())
