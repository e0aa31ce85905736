"""InfoCSE: contrastive learning and the filling in of masked tokens."""

from __future__ import annotations

from dataclasses import replace

from sentence_transformers import SentenceTransformer

from st_jtcse.losses.contrastive import InfoNCE
from st_jtcse.losses.declaration import Part, Positive
from st_jtcse.losses.terms import TWO_VIEWS, TwoViewLoss
from st_jtcse.papers.losses.reading_head import MaskedTokens, Reading


class InfoCSELoss(TwoViewLoss):
    r"""InfoNCE, and a second encoder that fills in masked words by the embedding.

    .. math:: L = L_{NCE} - \lambda \frac{1}{|m|} \sum_{t \in m}
        \log softmax(E U g(h, w')_t)_{w_t}

    Some of the words w of each view, m, are masked as BERT's are. The lower half of the second
    encoder g, a copy of the model's, reads w' and is not trained; the sentence's embedding h comes
    in behind it in the place of the first token's state, and the last two layers and the word
    embeddings E fill in the words. They are trained with the model and part of every checkpoint;
    the saved model is the encoder alone.

    Args:
        model: The model to train: one encoder whose embeddings are as wide as its states, with a
            mask token.
        temperature: τ > 0.
        reading_weight: λ > 0.
        mask_share: Share of the words that are masked.
        gather_across_devices: Whether candidates come from all processes.

    Raises:
        UserError: A value is out of range, there is not exactly one text column, the model does not
            fit, or a batch is no padded rows of tokens.

    Inputs:
        +----------+--------+
        | Columns  | Labels |
        +==========+========+
        | sentence | none   |
        +----------+--------+

    Relations:
        Without the second encoder: :class:`~st_jtcse.losses.SimCSELoss`. One that tells replaced
        words: :class:`~st_jtcse.losses.DiffCSELoss`.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from st_jtcse.losses import InfoCSELoss

            model = SentenceTransformer("bert-base-uncased")
            train_dataset = Dataset.from_dict(
                {"sentence": ["It is sunny today.", "He drove to work."]}
            )
            loss = InfoCSELoss(model)
            SentenceTransformerTrainer(model, train_dataset=train_dataset, loss=loss).train()

    References:
        Wu et al., InfoCSE, Findings of EMNLP 2022, auxiliary network.
    """

    declaration = replace(TWO_VIEWS, tokens=True)
    citation = """
@inproceedings{wu2022infocse,
    title = {{InfoCSE}: Information-aggregated Contrastive Learning of Sentence Embeddings},
    author = {Wu, Xing and others}, booktitle = {Findings of EMNLP}, year = {2022},
}
"""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        reading_weight: Positive = 1e-5,
        mask_share: Part = 0.4,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__(model, locals())
        self.reader = MaskedTokens(model, mask_share)
        self.terms = {
            "nce": InfoNCE(temperature),
            "masked_tokens": Reading(self.reader, weight=reading_weight),
        }
