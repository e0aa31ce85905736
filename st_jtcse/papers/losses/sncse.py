"""SNCSE: contrastive learning with soft negatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sentence_transformers import SentenceTransformer

from st_jtcse.losses.contrastive import InfoNCE
from st_jtcse.losses.declaration import Count, NotNegative, Positive
from st_jtcse.losses.terms import TWO_VIEWS, TwoViewLoss
from st_jtcse.papers.losses.margins import SoftNegatives


class SNCSELoss(TwoViewLoss):
    r"""InfoNCE, and a bidirectional margin between the positive and a soft negative.

    .. math:: L = L_{NCE} + \lambda \frac{1}{B} \sum_i
        \max(0, \Delta_i + \alpha) + \max(0, -\Delta_i - \beta), \quad
        \Delta_i = \cos(h_i^a, h_i^c) - \cos(h_i^a, h_i^b)

    The soft negative is the third view c of each sentence, in SNCSE its negation: name it by
    ``views: [dropout, dropout, negate]``. Its cosine is held α to β below the positive's.

    Args:
        model: The model to train.
        temperature: τ > 0.
        margin_weight: λ > 0. SNCSE's code: 1e-3 for BERT, 5e-4 for RoBERTa.
        least_gap: α ≥ 0.
        most_gap: β ≥ α.
        gather_across_devices: Whether candidates come from all processes.
        mini_batch_size: Rows of all views to encode at once (GradCache): the same loss and
            gradients in the memory that these need, in twice the time. None: all.
        mini_batch_num_tokens: Tokens to encode at once instead of rows, without padding.

    Raises:
        UserError: A value is out of range, there is not exactly one text column, or no third view.

    Inputs:
        +----------+--------+
        | Columns  | Labels |
        +==========+========+
        | sentence | none   |
        +----------+--------+

    Relations:
        Without the soft negatives: :class:`~st_jtcse.losses.SimCSELoss`. A third view that is only
        to be farther: :class:`~st_jtcse.losses.ArcCSELoss`.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from st_jtcse.losses import SNCSELoss
            from st_jtcse.abilities.sentence_views.view_blocks import ViewSpec
            from st_jtcse.abilities.sentence_views.view_collator import ViewCollator

            model = SentenceTransformer("bert-base-uncased")
            train_dataset = Dataset.from_dict(
                {"sentence": ["It is sunny today.", "He drove to work."]}
            )
            views = [ViewSpec(type=name) for name in ("dropout", "dropout", "negate")]
            SentenceTransformerTrainer(
                model,
                train_dataset=train_dataset,
                data_collator=ViewCollator(model.preprocess, model=model, views=views),
                loss=SNCSELoss(model),
            ).train()

    References:
        Wang et al., SNCSE, 2022, bidirectional margin loss.
    """

    declaration = replace(TWO_VIEWS, third_view=True)
    citation = """
@misc{wang2022sncse,
    title = {{SNCSE}: Contrastive Learning for Unsupervised Sentence Embedding with Soft Negative
             Samples},
    author = {Wang, Hao and others}, eprint = {2201.05979}, archivePrefix = {arXiv}, year = {2022},
}
"""

    @classmethod
    def misfits_together(cls, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield a least gap that is above the most."""
        least, most = arguments["least_gap"], arguments["most_gap"]
        if least > most:
            told = f"expected at most 'most_gap', {most:g}, found {least:g}. Lower it."
            yield "least_gap", told

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        margin_weight: Positive = 1e-3,
        least_gap: NotNegative = 0.1,
        most_gap: NotNegative = 0.3,
        gather_across_devices: bool = False,
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
    ) -> None:
        super().__init__(model, locals())
        self.terms = {
            "nce": InfoNCE(temperature),
            "soft_negatives": SoftNegatives(least_gap, most_gap, weight=margin_weight),
        }
