"""SimCSE: contrastive learning with dropout as the only augmentation."""

from __future__ import annotations

from dataclasses import replace

from sentence_transformers import SentenceTransformer

from st_jtcse.losses.contrastive import Candidates, InfoNCE
from st_jtcse.losses.declaration import Count, Positive
from st_jtcse.losses.terms import TWO_VIEWS, TwoViewLoss

_READING = (
    "Choose DiffCSELoss for replaced tokens or InfoCSELoss for masked ones, without 'reading'."
)
# Arguments that made other papers' losses of it, which are classes now.
_MOVED = {
    "angular_margin": "Choose ArcCSELoss.",
    "soft_negatives": "Choose SNCSELoss, where it is 'margin_weight', or ArcCSELoss, where it is "
    "'triplet_weight'.",
    "least_gap": "Choose SNCSELoss, or ArcCSELoss, where it is 'triplet_margin'.",
    "most_gap": "Choose SNCSELoss.",
    "queue_size": "Choose ESimCSELoss, or ISCSELoss, which smooths.",
    "momentum": "Choose ESimCSELoss.",
    "instance_smoothing": "Choose ISCSELoss, where it is 'smoothing_weight'.",
    "smoothing_neighbours": "Choose ISCSELoss, where it is 'neighbours'.",
    "whitening_groups": "Choose WhitenedCSELoss.",
    "whitened_positives": "Choose WhitenedCSELoss.",
    **dict.fromkeys(("reading", "reading_weight", "mask_share", "generator"), _READING),
}


class SimCSELoss(TwoViewLoss):
    r"""InfoNCE between two views of each sentence.

    .. math:: L = -\frac{1}{B} \sum_i
        \log \frac{e^{sim(h_i^a, h_i^b) / \tau}}{\sum_c e^{sim(h_i^a, h_c) / \tau}}

    The views are made inside: the column is tokenised once and both views go through one forward
    pass. The rest is
    :class:`~sentence_transformers.sentence_transformer.losses.MultipleNegativesRankingLoss`,
    gathering included.

    Args:
        model: The model to train; its dropout makes the views.
        temperature: τ > 0.
        candidates: ``"other_view"``: the B rows of view b, as in SimCSE. ``"both_views"``: NT-Xent,
            the 2B - 1 other rows of both views, averaged over the rows of both, as in SimCLR and in
            the JTCSE and TNCSE code.
        gather_across_devices: Whether candidates come from all processes.
        mini_batch_size: Rows of all views to encode at once (GradCache): the same loss and
            gradients in the memory that these need, in twice the time. None: all.
        mini_batch_num_tokens: Tokens to encode at once instead of rows, without padding.

    Raises:
        UserError: A value is out of range, or there is not exactly one text column.

    Inputs:
        +----------+--------+
        | Columns  | Labels |
        +==========+========+
        | sentence | none   |
        +----------+--------+

    Relations:
        With labelled pairs use MultipleNegativesRankingLoss; with two towers use
        :class:`~st_jtcse.losses.JTCSELoss`. Further terms make it
        :class:`~st_jtcse.losses.ArcCSELoss`, :class:`~st_jtcse.losses.ESimCSELoss`,
        :class:`~st_jtcse.losses.SNCSELoss`, :class:`~st_jtcse.losses.ISCSELoss`,
        :class:`~st_jtcse.losses.WhitenedCSELoss`, :class:`~st_jtcse.losses.DiffCSELoss` or
        :class:`~st_jtcse.losses.InfoCSELoss`.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from st_jtcse.losses import SimCSELoss

            model = SentenceTransformer("bert-base-uncased")
            train_dataset = Dataset.from_dict(
                {"sentence": ["It is sunny today.", "He drove to work."]}
            )
            SentenceTransformerTrainer(
                model, train_dataset=train_dataset, loss=SimCSELoss(model)
            ).train()

    References:
        Gao et al., SimCSE, EMNLP 2021, Eq. 4; JTCSE (Zong et al.), Eq. 11; Chen et al., SimCLR,
        ICML 2020, Eq. 1.
    """

    declaration = replace(TWO_VIEWS, cards={(): "simcse"}, moved={**TWO_VIEWS.moved, **_MOVED})
    citation = """
@inproceedings{gao2021simcse,
    title = {{SimCSE}: Simple Contrastive Learning of Sentence Embeddings},
    author = {Gao, Tianyu and Yao, Xingcheng and Chen, Danqi},
    booktitle = {Proceedings of EMNLP}, year = {2021},
}
"""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        candidates: Candidates = "other_view",
        gather_across_devices: bool = False,
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
    ) -> None:
        super().__init__(model, locals())
        self.terms = {"nce": InfoNCE(temperature, candidates)}
