"""DiffCSE: contrastive learning and the detection of replaced tokens."""

from __future__ import annotations

from dataclasses import replace

from sentence_transformers import SentenceTransformer

from st_jtcse.losses.contrastive import InfoNCE
from st_jtcse.losses.declaration import Part, Positive
from st_jtcse.losses.terms import TWO_VIEWS, TwoViewLoss
from st_jtcse.papers.losses.reading_head import Reading, ReplacedTokens


class DiffCSELoss(TwoViewLoss):
    r"""InfoNCE, and a second encoder that tells by the embedding which words were replaced.

    .. math:: L = L_{NCE} - \lambda \frac{1}{|w|} \sum_t
        \log \sigma((2 y_t - 1) u^\top g(h, w')_t)

    Some of the words w of each view are replaced, w', where y = 1. The second encoder g, a copy of
    the model's, has the sentence's embedding h in the place of its first token's state; what h does
    not hold, it misses. It is trained with the model and part of every checkpoint; the saved model
    is the encoder alone.

    Args:
        model: The model to train: one encoder whose embeddings are as wide as its states, with a
            mask token.
        temperature: τ > 0.
        reading_weight: λ > 0.
        mask_share: Share of the words that are replaced.
        generator: Name or folder of a masked language model of the same vocabulary, which is not
            trained: its likeliest words replace others. None: words of the batch, drawn at random.
        gather_across_devices: Whether candidates come from all processes.

    Raises:
        UserError: A value is out of range, there is not exactly one text column, the model or the
            generator does not fit, or a batch is no padded rows of tokens.

    Inputs:
        +----------+--------+
        | Columns  | Labels |
        +==========+========+
        | sentence | none   |
        +----------+--------+

    Relations:
        Without the second encoder: :class:`~st_jtcse.losses.SimCSELoss`. One that fills in masked
        words: :class:`~st_jtcse.losses.InfoCSELoss`.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from st_jtcse.losses import DiffCSELoss

            model = SentenceTransformer("bert-base-uncased")
            train_dataset = Dataset.from_dict(
                {"sentence": ["It is sunny today.", "He drove to work."]}
            )
            loss = DiffCSELoss(model)
            SentenceTransformerTrainer(model, train_dataset=train_dataset, loss=loss).train()

    References:
        Chuang et al., DiffCSE, NAACL 2022, Sec. 3.
    """

    declaration = replace(TWO_VIEWS, tokens=True)
    citation = """
@inproceedings{chuang2022diffcse,
    title = {{DiffCSE}: Difference-based Contrastive Learning for Sentence Embeddings},
    author = {Chuang, Yung-Sung and others}, booktitle = {Proceedings of NAACL}, year = {2022},
}
"""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        reading_weight: Positive = 0.005,
        mask_share: Part = 0.3,
        generator: str | None = None,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__(model, locals())
        self.reader = ReplacedTokens(model, mask_share, generator)
        self.terms = {
            "nce": InfoNCE(temperature),
            "replaced_tokens": Reading(self.reader, weight=reading_weight),
        }
