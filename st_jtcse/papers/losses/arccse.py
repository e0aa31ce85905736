"""ArcCSE: contrastive learning with margins in angular space."""

from __future__ import annotations

from dataclasses import replace

from sentence_transformers import SentenceTransformer

from st_jtcse.losses.declaration import AcuteAngle, Count, NotNegative, Positive
from st_jtcse.losses.terms import TWO_VIEWS, TwoViewLoss
from st_jtcse.papers.losses.margins import MarginInfoNCE, SoftNegatives

# Two cosines never differ by more: the triplets' gap has no upper bound.
_ANY_GAP = 2.0


class ArcCSELoss(TwoViewLoss):
    r"""InfoNCE whose positive must be nearer by an angular margin, and a term over triplets.

    .. math:: L = -\frac{1}{B} \sum_i \log \frac{e^{\cos(\theta_{i,i} + m) / \tau}}
        {e^{\cos(\theta_{i,i} + m) / \tau} + \sum_{j \neq i} e^{\cos \theta_{i,j} / \tau}}
        + \lambda \frac{1}{B} \sum_i \max(0, \cos(h_i^a, h_i^c) - \cos(h_i^a, h_i^b) + \delta)

    :math:`\theta_{i,j}` is the angle between view a of sentence i and view b of sentence j. The
    triplets' third view c has lost more of the sentence than b, so that b is to be nearer: name
    such views by ``views``. The margin works up to :math:`\theta = 180 - m`; positives lie far
    below.

    Args:
        model: The model to train.
        temperature: τ > 0.
        angular_margin: m in degrees, from 0 to below 90.
        triplet_weight: λ ≥ 0; above 0 a batch needs three views of each sentence.
        triplet_margin: δ ≥ 0.
        gather_across_devices: Whether candidates come from all processes.
        mini_batch_size: Rows of all views to encode at once (GradCache): the same loss and
            gradients in the memory that these need, in twice the time. None: all.
        mini_batch_num_tokens: Tokens to encode at once instead of rows, without padding.

    Raises:
        UserError: A value is out of range, there is not exactly one text column, or no third view
            where the triplets need it.

    Inputs:
        +----------+--------+
        | Columns  | Labels |
        +==========+========+
        | sentence | none   |
        +----------+--------+

    Relations:
        With m = 0 and λ = 0: :class:`~st_jtcse.losses.SimCSELoss`. A third view that is negated
        and held within two bounds: :class:`~st_jtcse.losses.SNCSELoss`.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from st_jtcse.losses import ArcCSELoss

            model = SentenceTransformer("bert-base-uncased")
            train_dataset = Dataset.from_dict(
                {"sentence": ["It is sunny today.", "He drove to work."]}
            )
            loss = ArcCSELoss(model, angular_margin=10.0)
            SentenceTransformerTrainer(model, train_dataset=train_dataset, loss=loss).train()

    References:
        Zhang et al., ArcCSE, ACL 2022, ArcCon and triplet losses. ArcCSE masks spans of the
        sentence, the second within the first's rest.
    """

    declaration = replace(TWO_VIEWS, third_view="triplet_weight")
    citation = """
@inproceedings{zhang2022arccse,
    title = {A Contrastive Framework for Learning Sentence Representations from Pairwise and
             Triple-wise Perspective in Angular Space},
    author = {Zhang, Yuhao and others}, booktitle = {Proceedings of ACL}, year = {2022},
}
"""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        angular_margin: AcuteAngle = 10.0,
        triplet_weight: NotNegative = 0.0,
        triplet_margin: NotNegative = 0.0,
        gather_across_devices: bool = False,
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
    ) -> None:
        super().__init__(model, locals())
        self.terms = {"nce": MarginInfoNCE(temperature, angular_margin)}
        if triplet_weight:
            triplets = SoftNegatives(triplet_margin, _ANY_GAP, weight=triplet_weight)
            self.terms["triplets"] = triplets
