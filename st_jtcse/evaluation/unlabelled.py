"""A measure without labels: how far a model has the neighbourhoods of sentences that it was not
trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat

import numpy as np
import numpy.typing as npt
from sentence_transformers import SentenceTransformer

from st_jtcse.data.neighbours import TOPIC_NEIGHBOURS, neighbourhood_means, topic_weight
from st_jtcse.evaluation.measured_sets import OwnSet, Statistic
from st_jtcse.evaluation.own_sets import NEAREST, OwnSetEvaluator, nearest_others
from st_jtcse.evaluation.unique_texts import Vectors

# The metric's name; each set has its own reference.
SHARED_NEIGHBOURS = "shared_neighbours"


def is_agreement(metric: str | None) -> bool:
    """Whether a metric is one of these, whose scores on two sets are not compared."""
    return metric == SHARED_NEIGHBOURS


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
    count = min(NEAREST, (len(texts) - 1) // 2)
    measure = partial(_shared, nearest_others(reference, count))
    return OwnSet("unlabelled", SHARED_NEIGHBOURS, (texts,), len(texts), sha256, measure)


def agreed_set(
    texts: Sequence[str],
    sha256: str,
    start: Vectors,
    held: Sequence[Vectors],
    among: Sequence[Vectors] | None = None,
) -> OwnSet:
    """Return the set whose score is how many nearest neighbours a model shares with what several
    candidates, itself among them, agree on.

    The reference of :func:`neighbours_set` is here the mean of the candidates' cosines. Their
    vectors are first drawn to their neighbours, as far as the text has topics by the start. Where
    it has none, nothing says which candidate is better, and the neighbours are the start's own.

    Args:
        texts: Texts that are held out.
        sha256: Their hash.
        start: The start's unit vectors of texts to fit on.
        held: Each candidate's unit vectors of the held-out texts, (n, H_k), the start's first.
        among: Likewise of texts to fit on, in which neighbours are found; None: they are found in
            the held-out ones.
    """
    weight = topic_weight(start, TOPIC_NEIGHBOURS)
    if not weight:
        return neighbours_set(texts, held[0], sha256)
    drawn = [
        neighbourhood_means(own, TOPIC_NEIGHBOURS, weight, others)
        for own, others in zip(held, among or repeat(None))
    ]
    return neighbours_set(texts, np.concatenate(drawn, axis=1) / len(drawn) ** 0.5, sha256)


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

    def __call__(  # type: ignore[override]  # ST's own evaluators narrow the model's type too
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
        metrics = self.prefix_name_to_metrics({self.own.metric: score}, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics


def _shared(expected: npt.NDArray[np.int64], texts: Vectors) -> Statistic:
    found = nearest_others(texts, expected.shape[1])
    shares = (found[:, :, None] == expected[:, None, :]).any(axis=2).mean(axis=1)
    return lambda items: float(shares[items].mean())
