"""RankCSE: contrastive learning with ranking consistency and ranking distillation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_jtcse.losses.declaration import Count, LossDeclaration, NotNegative, Positive
from st_jtcse.losses.matryoshka import Terms, refuse_cut_labels
from st_jtcse.losses.ranking import Ranking, cosent_in_batch, listmle, listnet, ranking_consistency
from st_jtcse.losses.simcse import SimCSELoss
from st_jtcse.losses.views import encode_views, single_column, teacher_similarities, view_similarities


class RankCSELoss(SimCSELoss):
    r"""Contrastive learning whose in-batch similarities follow a frozen teacher's order.

    .. math:: L = L_{NCE} + \beta L_{consistency} + \gamma L_{distillation}

    S_{ij} is the cosine of view a of sentence i and view b of sentence j, T_{ij} the dot product of the label vectors:
    the weighted sum of the teachers' cosines, if the labels are the concatenation that ``st-train`` makes. A weight of
    0 switches a term off.

    Args:
        model: The student; its dropout makes the views.
        temperature: τ > 0 of the contrastive and the ranking terms.
        ranking: Form of the distillation, see :mod:`st_jtcse.losses.ranking`.
        teacher_temperature: τ_T > 0 of ListNet's targets; None for τ / 2, as in RankCSE.
        cosent_scale: λ of the CoSENT form.
        consistency_weight: β.
        distillation_weight: γ.
        gather_across_devices: Whether the terms run over the sentences of all processes.
        length_chunks: Chunks of similar length to encode a batch in; None: 4 on the CPU, else 1. The loss is the same.

    Raises:
        UserError: A value is out of range, there is not exactly one text column, or there are no labels.

    Inputs:
        One column, ``sentence``; labels: a teacher vector each, (B, D).

    Relations:
        Without teachers: :class:`~st_jtcse.losses.SimCSELoss`, the L_NCE of this loss. ST's MatryoshkaLoss cuts the
        student's embeddings; label vectors as wide as those, which it would cut too, are refused.

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
            loss = RankCSELoss(student, ranking="cosent")
            SentenceTransformerTrainer(student, train_dataset=train_dataset, loss=loss).train()

    References:
        Liu et al., RankCSE, ACL 2023; Huang et al., CoSENT, TASLP 2024, for the CoSENT form.
    """

    # Dot products of the concatenated teachers' vectors are similarities.
    declaration: ClassVar[LossDeclaration] = LossDeclaration(
        sentences=True,
        views="made",
        teachers="concatenation",
        teachers_weight="distillation_weight",
        in_batch=True,
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
    ) -> None:
        super().__init__(
            model, temperature=temperature, gather_across_devices=gather_across_devices, length_chunks=length_chunks
        )
        self.ranking = ranking
        self.teacher_temperature = temperature / 2 if teacher_temperature is None else teacher_temperature
        # Not `scale`: the parent's is 1 / temperature.
        self.cosent_scale = cosent_scale
        self.consistency_weight = consistency_weight
        self.distillation_weight = distillation_weight
        self.check(**self.get_config_dict())

    def forward(  # type: ignore[override]  # ST's trainer sums the terms of a dict
        self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None
    ) -> Terms:
        """Encode both views of the batch and return the weighted terms by name."""
        features = single_column(sentence_features, self)
        view_a, view_b = encode_views(self.model, features, self.length_chunks)["sentence_embedding"].chunk(2)
        terms = Terms(nce=self.compute_loss_from_embeddings([view_a, view_b]))
        student = view_similarities(view_a, view_b, self.gather_across_devices)
        if self.consistency_weight:
            terms["consistency"] = self.consistency_weight * ranking_consistency(student, self.temperature)
        if self.distillation_weight:
            refuse_cut_labels(labels, self._embedding_dimension)
            teacher = teacher_similarities(labels, self, self.gather_across_devices).to(student)
            terms["distillation"] = self.distillation_weight * self._distillation(student, teacher)
        return terms

    def _distillation(self, student: Tensor, teacher: Tensor) -> Tensor:
        if self.ranking == "listnet":
            return listnet(student, teacher, self.temperature, self.teacher_temperature)
        if self.ranking == "listmle":
            return listmle(student, teacher, self.temperature)
        return cosent_in_batch(student, teacher, self.cosent_scale)
