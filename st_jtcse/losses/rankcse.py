"""RankCSE: contrastive learning with ranking consistency and ranking distillation."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_jtcse.losses.contrastive import InfoNCE
from st_jtcse.losses.declaration import Count, NotNegative, Positive
from st_jtcse.losses.ranking import Ranking, follow, ranking_consistency
from st_jtcse.losses.terms import TWO_VIEWS, Anchors, AnchorTerm, TwoViewLoss


@dataclass(eq=False)
class Consistency(AnchorTerm):
    """The two views' lists of similarities agree."""

    temperature: float

    def __call__(self, anchors: Anchors) -> Tensor:
        """Return the mean over the anchors."""
        return ranking_consistency(anchors.similarities, self.temperature, anchors.reversed())


@dataclass(eq=False)
class RankDistillation(AnchorTerm):
    """The student's similarities follow the teacher's, see :mod:`st_jtcse.losses.ranking`."""

    form: Ranking
    temperature: float
    teacher_temperature: float
    scale: float

    def __call__(self, anchors: Anchors) -> Tensor:
        """Return the mean over the anchors, or the CoSENT of all of them."""
        student, temperatures = anchors.similarities, (self.temperature, self.teacher_temperature)
        return follow(self.form, student, anchors.taught().to(student), *temperatures, self.scale)


class RankCSELoss(TwoViewLoss):
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
        mini_batch_size: Rows of all views to encode at once (GradCache): the same loss and
            gradients in the memory that these need, in twice the time. None: all.
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
        TWO_VIEWS,
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
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
    ) -> None:
        super().__init__(model, locals())
        if teacher_temperature is None:
            teacher_temperature = self.teacher_temperature = temperature / 2
        temperatures = temperature, teacher_temperature
        self.terms = {
            "nce": InfoNCE(temperature),
            "consistency": Consistency(temperature, weight=consistency_weight),
            "distillation": RankDistillation(
                ranking,
                *temperatures,
                cosent_scale,
                weight=distillation_weight,
                whole=ranking == "cosent",
            ),
        }
