"""RankCSE: contrastive learning with ranking consistency and ranking distillation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_jtcse.losses.declaration import Count, NotNegative, Positive
from st_jtcse.losses.functional import cosines, mean_in_parts, of_anchors, products
from st_jtcse.losses.ranking import Ranking, follow, ranking_consistency
from st_jtcse.losses.simcse import SimCSELoss
from st_jtcse.losses.views import Terms, gathered, teacher_vectors


class RankCSELoss(SimCSELoss):
    r"""Contrastive learning whose in-batch similarities follow a frozen teacher's order.

    .. math:: L = L_{NCE} + \beta L_{consistency} + \gamma L_{distillation}

    S_{ij} is the cosine of view a of sentence i and view b of sentence j, T_{ij} the dot product of
    the label vectors: the weighted sum of the teachers' cosines, if the labels are the
    concatenation that ``st-train`` makes. A weight of 0 switches a term off.

    Args:
        model: The student; its dropout makes the views.
        temperature: τ > 0 of the contrastive and the ranking terms.
        ranking: Form of the distillation, see :mod:`st_jtcse.losses.ranking`.
        teacher_temperature: τ_T > 0 of ListNet's targets; None for τ / 2, as in RankCSE.
        cosent_scale: λ of the CoSENT form.
        consistency_weight: β.
        distillation_weight: γ.
        gather_across_devices: Whether the terms run over the sentences of all processes.
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
        +----------+------------------------+
        | Columns  | Labels                 |
        +==========+========================+
        | sentence | teacher vector, (B, D) |
        +----------+------------------------+

    Relations:
        Without teachers: :class:`~st_jtcse.losses.SimCSELoss`, the L_NCE of this loss. ST's
        MatryoshkaLoss cuts the student's embeddings; the teacher's similarities stay those of whole
        vectors.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from st_jtcse.losses import RankCSELoss

            student = SentenceTransformer("bert-base-uncased")
            teacher = SentenceTransformer("path/to/teacher")
            sentences = ["It is sunny today.", "He drove to work."]
            labels = teacher.encode(sentences, normalize_embeddings=True)
            train_dataset = Dataset.from_dict({"sentence": sentences, "label": labels})
            SentenceTransformerTrainer(
                student, train_dataset=train_dataset, loss=RankCSELoss(student)
            ).train()

    References:
        Liu et al., RankCSE, ACL 2023; Huang et al., CoSENT, TASLP 2024, for the CoSENT form.
    """

    # Dot products of the concatenated teachers' vectors are similarities.
    declaration = replace(
        SimCSELoss.declaration,
        teachers="concatenation",
        teachers_weight="distillation_weight",
        cards={(): "rankcse"},
    )
    citation = """
@inproceedings{liu2023rankcse,
    title = {{RankCSE}: Unsupervised Sentence Representations Learning via Learning to Rank},
    author = {Liu, Jiduan and others}, booktitle = {Proceedings of ACL}, year = {2023},
}
"""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        ranking: Ranking = "listnet",
        teacher_temperature: Positive | None = None,
        cosent_scale: Positive = 20.0,
        consistency_weight: NotNegative = 1.0,
        distillation_weight: NotNegative = 1.0,
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
        self.ranking = ranking
        self.teacher_temperature = (
            temperature / 2 if teacher_temperature is None else teacher_temperature
        )
        # Not `scale`: the parent's is 1 / temperature.
        self.cosent_scale = cosent_scale
        self.consistency_weight = consistency_weight
        self.distillation_weight = distillation_weight
        self.check(**self.get_config_dict())

    def compare(
        self, encoded: dict[str, Tensor], features: dict[str, Any], labels: Tensor | None
    ) -> Terms:
        """Return the weighted terms of the two views' embeddings by name."""
        a, b = encoded["sentence_embedding"].chunk(2)
        terms = Terms(nce=self.nce(a, b))
        a, b = gathered([a, b], self.gather_across_devices)
        teacher = a
        if self.distillation_weight:
            teacher = teacher_vectors(
                labels, self, self.gather_across_devices, self._embedding_dimension
            )

        def of(begin: int, end: int) -> Terms:
            found = Terms()
            student = of_anchors(cosines, a, b, begin, end)
            if self.consistency_weight:
                reverse = (
                    student.T if end - begin == len(a) else of_anchors(cosines, b, a, begin, end)
                )
                found["consistency"] = self.consistency_weight * ranking_consistency(
                    student, self.temperature, reverse
                )
            if self.distillation_weight:
                scores = of_anchors(products, teacher, teacher, begin, end).to(student)
                temperatures = self.temperature, self.teacher_temperature
                followed = follow(self.ranking, student, scores, *temperatures, self.cosent_scale)
                found["distillation"] = self.distillation_weight * followed
            return found

        at_once = None if self.ranking == "cosent" else self.anchors_at_once
        return Terms(**terms, **mean_in_parts(of, len(a), at_once))
