"""LS-RNS: label smoothing with ranked negative samples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather
from torch import Tensor

from st_jtcse.errors import UserError
from st_jtcse.losses import negative_ranks as formulas
from st_jtcse.losses.declaration import Count, NotNegative, Positive
from st_jtcse.losses.ranking import Ranking, follow
from st_jtcse.losses.terms import TWO_VIEWS, Anchors, AnchorTerm, Batch, TwoViewLoss
from st_jtcse.losses.views import token_rows

_CONSTANT = "Remove it: it is a constant of the loss, which only Python code changes."
_TOKENISED_AT_ONCE = 1000
Pair = tuple[str, str, float]


class RankedNegatives(NamedTuple):
    """What is known of the negatives of some anchors, (A, N) each."""

    scores: Tensor
    ranks: Tensor
    mass: Tensor


@dataclass(eq=False)
class RankedTerm(AnchorTerm):
    """A term over the student's similarities and what the scorer knows of the negatives."""

    scorer: Scorer
    temperature: float

    def __call__(self, anchors: Anchors) -> Tensor:
        """Return the mean over the anchors; 0 for a single sentence, which has no negative."""
        student = anchors.similarities
        if student.shape[1] == 1:
            return 0.0 * student.sum()
        return self.compare(student, anchors.once(self.scorer))

    def compare(self, student: Tensor, negatives: RankedNegatives) -> Tensor:
        """Return the mean over the anchors of (A, N) similarities."""
        raise NotImplementedError


@dataclass(eq=False)
class WeightedContrast(RankedTerm):
    """L_CL: InfoNCE whose negatives are weighted, or not."""

    asymmetric: bool

    def compare(self, student: Tensor, negatives: RankedNegatives) -> Tensor:
        """Return the mean over the anchors."""
        weights = formulas.negative_weights(negatives.mass)
        if not self.asymmetric:
            weights = torch.ones_like(weights)
        return formulas.asymmetric_contrastive(student, weights, self.temperature)


@dataclass(eq=False)
class FollowRanks(RankedTerm):
    """L_rank: the student's similarities follow the ranks."""

    form: Ranking
    target_temperature: float = 0.1

    def compare(self, student: Tensor, negatives: RankedNegatives) -> Tensor:
        """Return the mean over the anchors, or the CoSENT of all of them."""
        grades = formulas.relevance(negatives.ranks)
        # It reads the order alone, and groups and bins leave most of it open, which the scores do
        # not.
        if self.form == "listmle":
            grades = negatives.scores
        temperatures = self.temperature, self.target_temperature
        return follow(self.form, student, grades, *temperatures, 1 / self.temperature)


@dataclass(eq=False)
class LabelSmoothing(RankedTerm):
    """L_LS: cross-entropy against the smoothed target."""

    epsilon: float = 0.1

    def compare(self, student: Tensor, negatives: RankedNegatives) -> Tensor:
        """Return the mean over the anchors."""
        mass, temperature = negatives.mass, self.temperature
        return formulas.label_smoothing(student, mass, temperature, self.epsilon)


class LSRNSLoss(TwoViewLoss):
    r"""Contrastive learning whose in-batch negatives are ranked by a frozen scorer.

    .. math:: L = a L_{CL} + b L_{rank} + c L_{LS}

    For anchor i and negative j, s_{ij} is the dot product of the label vectors (the scorer's
    cosine), r_{ij} its rank in 1..M, α the retention and :math:`\bar q_{ij} \propto \alpha(r_{ij})
    \, \mathrm{softmax}_j(s_{ij} / \tau_s)`. L_CL is InfoNCE with its negatives weighted by
    :math:`w_{ij} = M \bar q_{ij}`, L_rank a list-wise loss that has the student follow the ranks,
    L_LS the cross-entropy against 1 - ε on the positive and :math:`\epsilon \bar q_{ij}` on the
    negatives; see :mod:`st_jtcse.losses.negative_ranks`. A weight of 0 switches a term off.

    The constants that the paper leaves open are attributes: τ_s = 1, δ = 0.05 and 10 groups of
    ``scorer`` (:class:`~st_jtcse.losses.lsrns.Scorer`), ε = 0.1 of the smoothing term,
    and 0.1, the temperature of ListNet's target over the grades 1 - (r - 1) / M, of the rank term.

    Args:
        model: The student; its dropout makes the views.
        temperature: τ > 0 of all terms.
        ranks: Rank function: ``"soft"``, ``"percentile"`` or ``"bins"``.
        retention: α: ``"linear"``, 1 - r / B over a batch of B; or ``"to_zero"``,
            ``"exponential"``, ``"reciprocal"``.
        asymmetric: Whether L_CL weighs its negatives; otherwise it is SimCSE's.
        rank_loss: ``"listnet"`` and ``"listmle"`` over each anchor's list, the latter in the
            scores' own order; ``"cosent"`` over all pairs of the batch.
        contrastive_weight: a.
        rank_weight: b.
        smoothing_weight: c.
        gather_across_devices: Whether negatives come from all processes.
        mini_batch_size: Rows of all views to encode at once (GradCache): the same loss and
            gradients in the memory that these need, in twice the time. None: all.
        mini_batch_num_tokens: Tokens to encode at once instead of rows, without padding.

    Raises:
        UserError: A value is out of range, there is not exactly one text column, or there are no
            labels.

    Inputs:
        +----------+-----------------------+
        | Columns  | Labels                |
        +==========+=======================+
        | sentence | scorer vector, (B, D) |
        +----------+-----------------------+

    Relations:
        With all weights 1 and ε = 0: :class:`~st_jtcse.losses.SimCSELoss`. With teachers and
        without weights: :class:`~st_jtcse.losses.RankCSELoss`. ST's MatryoshkaLoss cuts the
        student's embeddings; the scorer's similarities stay those of whole vectors.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from st_jtcse.losses import LSRNSLoss

            student = SentenceTransformer("bert-base-uncased")
            scorer = SentenceTransformer("path/to/teacher")
            sentences = ["It is sunny today.", "He drove to work."]
            labels = scorer.encode(sentences, normalize_embeddings=True)
            train_dataset = Dataset.from_dict({"sentence": sentences, "label": labels})
            SentenceTransformerTrainer(
                student, train_dataset=train_dataset, loss=LSRNSLoss(student)
            ).train()

    References:
        LS-RNS, label smoothing with ranked negative samples; its equations are our reading, see the
        documentation.
    """

    # Dot products of the concatenated teachers' vectors are similarities.
    declaration = replace(
        TWO_VIEWS,
        teachers="concatenation",
        judged_pairs=True,
        one_above_zero=("contrastive_weight", "rank_weight", "smoothing_weight"),
        cards={(): "lsrns"},
        moved={
            **TWO_VIEWS.moved,
            **dict.fromkeys(("scorer_temperature", "softness", "groups"), _CONSTANT),
            **dict.fromkeys(("rank_temperature", "epsilon"), _CONSTANT),
        },
    )
    citation = """
@article{lsrns2025,
    title = {{LS-RNS}}, journal = {Symmetry}, volume = {17}, number = {5},
    pages = {646}, year = {2025},
}
"""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        ranks: formulas.Ranks = "soft",
        retention: formulas.Retention = "linear",
        asymmetric: bool = True,
        rank_loss: Ranking = "listnet",
        contrastive_weight: NotNegative = 1.0,
        rank_weight: NotNegative = 1.0,
        smoothing_weight: NotNegative = 1.0,
        gather_across_devices: bool = False,
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
    ) -> None:
        super().__init__(model, locals())
        scorer = self.scorer = Scorer(ranks, retention)
        self.terms = {
            "contrastive": WeightedContrast(
                scorer,
                temperature,
                asymmetric,
                weight=contrastive_weight,
            ),
            "rank": FollowRanks(
                scorer,
                temperature,
                rank_loss,
                weight=rank_weight,
                whole=rank_loss == "cosent",
            ),
            "smoothing": LabelSmoothing(scorer, temperature, weight=smoothing_weight),
        }

    def use_pair_scores(self, pairs: Sequence[tuple[str, str, float]]) -> None:
        """Take these scores instead of the scorer's similarities wherever both sentences, by their
        tokens, meet.

        A pair is two sentences, in either order, and their similarity. UserError where two of the
        same tokens differ.
        """
        self.scorer.judge(pairs, self.model.preprocess)


class Scorer:
    """Ranks the negatives of each anchor by the teacher's vectors, or as pairs were judged.

    Its constants are our reading of LS-RNS: τ_s of the initial distribution, δ of soft ranks in
    units of similarity, and the number of percentile groups or bins.
    """

    temperature = 1.0
    softness = 0.05
    groups = 10

    def __init__(self, ranks: formulas.Ranks, retention: formulas.Retention) -> None:
        self.ranks = ranks
        self.retention = retention
        self._judged: dict[int, dict[int, float]] = {}

    def __call__(self, anchors: Anchors) -> RankedNegatives:
        """Return what is known of the anchors' negatives."""
        scores = anchors.taught()
        if self._judged:
            keys = anchors.batch.once(self._keys)
            scores = self.with_judged(scores, keys[anchors.begin :] + keys[: anchors.begin])
        scores = scores.to(anchors.similarities)
        ranks = formulas.negative_ranks(scores, self.ranks, self.softness, self.groups)
        kept = formulas.retention(ranks, self.retention)
        mass = formulas.smoothed_distribution(scores, kept, self.temperature)
        return RankedNegatives(scores, ranks, mass)

    def judge(self, pairs: Sequence[Pair], tokenise: Callable[[list[str]], dict[str, Any]]) -> None:
        """Take these scores instead of the teacher's similarities, see
        :meth:`~st_jtcse.losses.LSRNSLoss.use_pair_scores`.
        """
        texts = dict.fromkeys(text for first, second, _ in pairs for text in (first, second))
        sentences = list(texts)
        keys: dict[str, int] = {}
        for start in range(0, len(sentences), _TOKENISED_AT_ONCE):
            some = sentences[start : start + _TOKENISED_AT_ONCE]
            keys.update(zip(some, token_keys(tokenise(some)).tolist()))
        self._judged = {}
        taken: dict[frozenset[int], Pair] = {}
        for pair in pairs:
            first, second, score = pair
            key, other = keys[first], keys[second]
            earlier = taken.setdefault(frozenset((key, other)), pair)
            if earlier[2] != score:
                raise UserError(
                    f"The judged pair {first!r}, {second!r} has the score {score:g}, and "
                    f"{earlier[0]!r}, {earlier[1]!r}, which has the same tokens to this model, "
                    f"{earlier[2]:g}; keep one of them."
                )
            self._judged.setdefault(key, {})[other] = score
            self._judged.setdefault(other, {})[key] = score

    def with_judged(self, scores: Tensor, keys: list[int]) -> Tensor:
        """Return the scores of some anchors, (A, N), with those of judged pairs in their places."""
        rows, columns, values = [], [], []
        for i, key in enumerate(keys[: len(scores)]):
            partners = self._judged.get(key)
            if partners is None:
                continue
            for j, other in enumerate(keys):
                if i != j and other in partners:
                    rows.append(i)
                    columns.append(j)
                    values.append(partners[other])
        if not values:
            return scores
        # At once: an assignment each would be a launch each on a GPU.
        places = torch.tensor([rows, columns], device=scores.device)
        return scores.index_put(tuple(places), scores.new_tensor(values))

    def _keys(self, batch: Batch) -> list[int]:
        keys = token_keys(batch.features)
        if batch.loss.gather_across_devices:
            keys = all_gather(keys.to(batch.features["input_ids"].device))
        return keys.tolist()


def token_keys(features: dict[str, Any]) -> Tensor:
    """Return a hash of each row's tokens, (B,): the same sentence has the same one in every
    process.
    """
    keys = []
    for row in token_rows(features):
        digest = hashlib.blake2b(json.dumps(row).encode(), digest_size=8).digest()
        keys.append(int.from_bytes(digest, "big", signed=True))
    return torch.tensor(keys)
