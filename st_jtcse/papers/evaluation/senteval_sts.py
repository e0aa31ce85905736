"""Graded sentence pairs by SentEval's protocol, as a Sentence-Transformers evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import pearsonr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator

from st_jtcse.correlation import pair_cosines, spearman
from st_jtcse.errors import UserError
from st_jtcse.evaluation.unique_texts import encode_columns

# First sentences, second sentences, gold scores.
PairColumns = tuple[Sequence[str], Sequence[str], Sequence[float]]


class SentEvalSTSEvaluator(SentenceEvaluator):
    """Correlation of cosine and gold score over the subsets of one STS set, aggregated in
    SentEval's three ways.

    With r(X) the correlation over the pairs X and S_1..S_n the subsets: ``all`` is r(S_1 ∪ ... ∪
    S_n), ``mean`` is Σ r(S_k) / n, ``wmean`` is Σ |S_k| r(S_k) / Σ |S_k|. The papers on
    unsupervised sentence embeddings report ``all``. Each sentence is encoded once.

    Args:
        subsets: First sentences, second sentences and scores by subset, e.g. ``{"MSRpar": (...,
            ..., ...)}``.
        name: Prefix of the metrics.
        batch_size: Sentences encoded at once.

    Returns:
        ``{name}_spearman_all``, ``_spearman_mean``, ``_spearman_wmean``, the same for ``pearson``,
        and with more than
        one subset ``{name}_spearman_{subset}`` for each. ``spearman_all`` is the primary metric.

    Raises:
        UserError: There is no subset, or one has columns of unequal length or fewer than two pairs.

    Example:
        ::

            from sentence_transformers import SentenceTransformer
            from st_jtcse.papers.evaluation import SentEvalSTSEvaluator

            pairs = (
                ["A man eats.", "A dog runs.", "A cat sleeps."],
                ["A man has a meal.", "A cat naps.", "A cat naps."],
            )
            evaluator = SentEvalSTSEvaluator({"mine": (*pairs, [4.5, 0.5, 4.0])}, name="mine")
            results = evaluator(SentenceTransformer("path/to/encoder_1"))
            print(results[evaluator.primary_metric])

    References:
        Conneau and Kiela, SentEval, LREC 2018; Gao et al., SimCSE, EMNLP 2021, Appendix B, on the
        three aggregations.
    """

    def __init__(
        self, subsets: Mapping[str, PairColumns], name: str = "", batch_size: int = 64
    ) -> None:
        super().__init__()
        if not subsets:
            raise UserError("An STS set needs at least one subset, found none.")
        for subset, (first, second, scores) in subsets.items():
            if not len(first) == len(second) == len(scores) or len(scores) < 2:
                raise UserError(
                    f"The subset {subset!r} needs at least two pairs with a score each, found "
                    f"{len(first)}, {len(second)} sentences and {len(scores)} scores."
                )
        self.subsets = dict(subsets)
        self.name = name
        self.batch_size = batch_size
        self.primary_metric = f"{name}_spearman_all" if name else "spearman_all"

    def __call__(  # type: ignore[override]  # ST's own evaluators narrow the model's type too
        self,
        model: SentenceTransformer,
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """Evaluate the model; the arguments are those of Sentence-Transformers' evaluators."""
        columns = [
            column for first, second, _ in self.subsets.values() for column in (first, second)
        ]
        vectors = encode_columns(model, columns, self.batch_size)
        pairs = zip(self.subsets, zip(vectors[::2], vectors[1::2]))
        cosines = {subset: pair_cosines(*both) for subset, both in pairs}
        gold = {
            subset: np.asarray(scores, dtype=float)
            for subset, (_, _, scores) in self.subsets.items()
        }
        sizes = [len(scores) for scores in gold.values()]
        metrics: dict[str, float] = {}
        for measure, correlate in (("spearman", spearman), ("pearson", _pearson)):
            each = [correlate(cosines[subset], gold[subset]) for subset in gold]
            metrics[f"{measure}_all"] = correlate(
                np.concatenate(list(cosines.values())), np.concatenate(list(gold.values()))
            )
            metrics[f"{measure}_mean"] = float(np.mean(each))
            metrics[f"{measure}_wmean"] = float(np.average(each, weights=sizes))
            if len(gold) > 1:
                metrics |= {f"{measure}_{subset}": value for subset, value in zip(gold, each)}
        metrics = self.prefix_name_to_metrics(metrics, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics

    @property
    def description(self) -> str:
        """What the model card calls this evaluation."""
        return "Semantic Similarity"


def _pearson(values: npt.NDArray[np.float32], others: npt.NDArray[np.float64]) -> float:
    return float(pearsonr(values, others).statistic)
