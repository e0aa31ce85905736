"""LS-RNS: label smoothing with ranked negative samples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather
from torch import Tensor

from st_jtcse.errors import UserError
from st_jtcse.losses import negative_ranks as formulas
from st_jtcse.losses.declaration import Count, NotNegative, Positive, Share
from st_jtcse.losses.functional import cosines, mean_in_parts, of_anchors, products
from st_jtcse.losses.ranking import Ranking, follow
from st_jtcse.losses.simcse import SimCSELoss
from st_jtcse.losses.views import Terms, gathered, teacher_vectors, token_rows

_TOKENISED_AT_ONCE = 1000


class LSRNSLoss(SimCSELoss):
    r"""Contrastive learning whose in-batch negatives are ranked by a frozen scorer.

    .. math:: L = a L_{CL} + b L_{rank} + c L_{LS}

    For anchor i and negative j, s_{ij} is the dot product of the label vectors (the scorer's
    cosine), r_{ij} its rank in 1..M, α the retention and :math:`\bar q_{ij} \propto \alpha(r_{ij})
    \, \mathrm{softmax}_j(s_{ij} / \tau_s)`. L_CL is InfoNCE with its negatives weighted by
    :math:`w_{ij} = M \bar q_{ij}`, L_rank a list-wise loss that has the student follow the ranks,
    L_LS the cross-entropy against 1 - ε on the positive and :math:`\epsilon \bar q_{ij}` on the
    negatives; see :mod:`st_jtcse.losses.negative_ranks`. A weight of 0 switches a term off.

    Args:
        model: The student; its dropout makes the views.
        temperature: τ > 0 of all terms.
        scorer_temperature: τ_s > 0.
        ranks: Rank function: ``"soft"``, ``"percentile"`` or ``"bins"``.
        softness: δ > 0 of the soft ranks, in units of similarity.
        groups: Number of percentile groups or bins.
        retention: α: ``"linear"``, 1 - r / B over a batch of B; or ``"to_zero"``,
            ``"exponential"``, ``"reciprocal"``.
        asymmetric: Whether L_CL weighs its negatives; otherwise it is SimCSE's.
        rank_loss: ``"listnet"`` and ``"listmle"`` over each anchor's list, the latter in the
            scores' own order; ``"cosent"`` over all pairs of the batch.
        rank_temperature: Temperature > 0 of ListNet's target over the ranks as grades, 1 - (r - 1)
            / M.
        epsilon: ε in [0, 1).
        contrastive_weight: a.
        rank_weight: b.
        smoothing_weight: c.
        gather_across_devices: Whether negatives come from all processes.
        length_chunks: Chunks of similar length to encode a batch in; None: 4 on the CPU, else 1.
            The loss is the same.
        mini_batch_size: Rows to encode at once, of the 2B of both views, with gradients cached at
            the embeddings (GradCache): the same loss and gradients in the memory of so many rows,
            and twice the time. None: all.
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
        SimCSELoss.declaration,
        teachers="concatenation",
        judged_pairs=True,
        one_above_zero=("contrastive_weight", "rank_weight", "smoothing_weight"),
        cards={(): "lsrns"},
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
        scorer_temperature: Positive = 1.0,
        ranks: formulas.Ranks = "soft",
        softness: Positive = 0.05,
        groups: Count = 10,
        retention: formulas.Retention = "linear",
        asymmetric: bool = True,
        rank_loss: Ranking = "listnet",
        rank_temperature: Positive = 0.1,
        epsilon: Share = 0.1,
        contrastive_weight: NotNegative = 1.0,
        rank_weight: NotNegative = 1.0,
        smoothing_weight: NotNegative = 1.0,
        gather_across_devices: bool = False,
        length_chunks: Count | None = None,
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
    ) -> None:
        super().__init__(
            model,
            temperature=temperature,
            gather_across_devices=gather_across_devices,
            length_chunks=length_chunks,
            mini_batch_size=mini_batch_size,
            mini_batch_num_tokens=mini_batch_num_tokens,
        )
        self.scorer_temperature = scorer_temperature
        self.ranks = ranks
        self.softness = softness
        self.groups = groups
        self.retention = retention
        self.asymmetric = asymmetric
        self.rank_loss = rank_loss
        self.rank_temperature = rank_temperature
        self.epsilon = epsilon
        self.contrastive_weight = contrastive_weight
        self.rank_weight = rank_weight
        self.smoothing_weight = smoothing_weight
        self._judged: dict[int, dict[int, float]] = {}
        self.check(**self.get_config_dict())

    def use_pair_scores(self, pairs: Sequence[tuple[str, str, float]]) -> None:
        """Take these scores instead of the scorer's similarities wherever both sentences, by their
        tokens, meet.

        A pair is two sentences, in either order, and their similarity. UserError where two of the
        same tokens differ.
        """
        sentences = list(
            dict.fromkeys(text for first, second, _ in pairs for text in (first, second))
        )
        keys: dict[str, int] = {}
        for start in range(0, len(sentences), _TOKENISED_AT_ONCE):
            some = sentences[start : start + _TOKENISED_AT_ONCE]
            keys.update(zip(some, _token_keys(self.model.preprocess(some)).tolist()))
        self._judged = {}
        taken: dict[frozenset[int], tuple[str, str, float]] = {}
        for pair in pairs:
            first, second, score = pair
            earlier = taken.setdefault(frozenset((keys[first], keys[second])), pair)
            if earlier[2] != score:
                raise UserError(
                    f"The judged pair {first!r}, {second!r} has the score {score:g}, and "
                    f"{earlier[0]!r}, "
                    f"{earlier[1]!r}, which has the same tokens to this model, {earlier[2]:g}; "
                    "keep one of them."
                )
            self._judged.setdefault(keys[first], {})[keys[second]] = score
            self._judged.setdefault(keys[second], {})[keys[first]] = score

    def compare(
        self, encoded: dict[str, Tensor], features: dict[str, Any], labels: Tensor | None
    ) -> Terms:
        """Return the weighted terms of the two views' embeddings by name."""
        scorer = teacher_vectors(
            labels, self, self.gather_across_devices, self._embedding_dimension
        )
        keys = self._keys(features) if self._judged else []
        a, b = gathered(encoded["sentence_embedding"].chunk(2), self.gather_across_devices)

        def of(begin: int, end: int) -> Terms:
            student = of_anchors(cosines, a, b, begin, end)
            scores = of_anchors(products, scorer, scorer, begin, end)
            if keys:
                scores = self._with_judged(scores, keys[begin:] + keys[:begin])
            return self.compute_loss_from_similarities(student, scores.to(student))

        at_once = None if self.rank_loss == "cosent" and self.rank_weight else self.anchors_at_once
        return Terms(mean_in_parts(of, len(a), at_once))

    def compute_loss_from_similarities(self, student: Tensor, scores: Tensor) -> Terms:
        """Return the weighted terms by name, from the views' cosines and the scorer's similarities.

        (B, B) each, or the first rows of it. CoSENT, which compares all pairs, needs them all.
        """
        if student.shape[1] == 1:  # The last batch of an epoch: there is no negative.
            on = {
                "contrastive": self.contrastive_weight,
                "rank": self.rank_weight,
                "smoothing": self.smoothing_weight,
            }
            return Terms({name: 0.0 * student.sum() for name, weight in on.items() if weight})
        ranked = formulas.negative_ranks(scores, self.ranks, self.softness, self.groups)
        kept = formulas.retention(ranked, self.retention)
        mass = formulas.smoothed_distribution(scores, kept, self.scorer_temperature)
        terms = Terms()
        if self.contrastive_weight:
            weights = (
                formulas.negative_weights(mass)
                if self.asymmetric
                else scores.new_ones(scores.shape)
            )
            contrastive = formulas.asymmetric_contrastive(student, weights, self.temperature)
            terms["contrastive"] = self.contrastive_weight * contrastive
        if self.rank_weight:
            # ListMLE reads the order alone, and groups and bins leave most of it open, which the
            # scores do not.
            grades = scores if self.rank_loss == "listmle" else formulas.relevance(ranked)
            terms["rank"] = self.rank_weight * follow(
                self.rank_loss,
                student,
                grades,
                self.temperature,
                self.rank_temperature,
                1 / self.temperature,
            )
        if self.smoothing_weight:
            smoothing = formulas.label_smoothing(student, mass, self.temperature, self.epsilon)
            terms["smoothing"] = self.smoothing_weight * smoothing
        return terms

    def _keys(self, features: dict[str, Any]) -> list[int]:
        keys = _token_keys(features)
        if self.gather_across_devices:
            keys = all_gather(keys.to(features["input_ids"].device))
        return keys.tolist()

    def _with_judged(self, scores: Tensor, keys: list[int]) -> Tensor:
        found = [
            (i, j, partners[other])
            for i, key in enumerate(keys[: len(scores)])
            if (partners := self._judged.get(key))
            for j, other in enumerate(keys)
            if i != j and other in partners
        ]
        if not found:
            return scores
        rows, columns, values = zip(*found)
        # At once: an assignment each would be a launch each on a GPU.
        places = torch.tensor([rows, columns], device=scores.device)
        return scores.index_put(tuple(places), scores.new_tensor(values))


def _token_keys(features: dict[str, Any]) -> Tensor:
    """Return a hash of each row's tokens, (B,): the same sentence has the same one in every
    process.
    """
    digests = (
        hashlib.blake2b(json.dumps(row).encode(), digest_size=8).digest()
        for row in token_rows(features)
    )
    return torch.tensor([int.from_bytes(digest, "big", signed=True) for digest in digests])
