"""CoSENT for a cross-encoder."""

from __future__ import annotations

from sentence_transformers.cross_encoder import CrossEncoder
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn

from st_jtcse.errors import UserError
from st_jtcse.losses.declaration import DeclaredLoss, LossDeclaration, Positive
from st_jtcse.losses.ranking import cosent


class CrossEncoderCoSENTLoss(DeclaredLoss, nn.Module):
    r"""CoSENT over the scores f of a cross-encoder: pairs of higher labels shall have higher
    scores.

    .. math:: \log\Big(1 + \sum_{l_i > l_k} e^{\lambda (f_k - f_i)}\Big)

    The scores are the model's raw outputs, so that λ = 1, the authors' code's, fits. Only the
    labels' order counts, and equal ones are not compared. O(B log B) time and O(B) memory.

    Args:
        model: Cross-encoder with one output.
        scale: λ > 0.

    Raises:
        UserError: The model has several outputs, λ is not positive, or there are not exactly two
            text columns.

    Inputs:
        +--------------------------+-------------+
        | Columns                  | Labels      |
        +==========================+=============+
        | (sentence_A, sentence_B) | score, (B,) |
        +--------------------------+-------------+

    Relations:
        For a bi-encoder: :class:`sentence_transformers.sentence_transformer.losses.CoSENTLoss`.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer
            from st_jtcse.losses import CrossEncoderCoSENTLoss

            model = CrossEncoder("bert-base-uncased", num_labels=1)
            train_dataset = Dataset.from_dict(
                {
                    "sentence1": ["It rains.", "He drove."],
                    "sentence2": ["Rain falls.", "She swam."],
                    "score": [4.6, 1.0],
                }
            )
            CrossEncoderTrainer(
                model, train_dataset=train_dataset, loss=CrossEncoderCoSENTLoss(model)
            ).train()

    References:
        Huang et al., CoSENT, TASLP 2024, Eq. 11.
    """

    declaration = LossDeclaration(
        cross_encoder=True,
        labels="scores",
        texts=(2, 2),
        in_batch=True,
        cards={(): "cosent-cross-encoder"},
    )
    citation = """
@article{huang2024cosent,
    title = {{CoSENT}: Consistent Sentence Embedding via Similarity Ranking},
    author = {Huang, Xiang and others},
    journal = {IEEE/ACM Transactions on Audio, Speech, and Language Processing}, year = {2024},
}
"""

    scale: float

    def __init__(self, model: CrossEncoder, *, scale: Positive = 1.0) -> None:
        super().__init__()
        if model.num_labels != 1:
            raise UserError(
                "CrossEncoderCoSENTLoss needs a cross-encoder with one output, found "
                f"{model.num_labels}."
            )
        self.keep(locals())
        self.model = model

    def forward(
        self,
        inputs: list[list[str]],
        labels: Tensor,
        prompt: str | None = None,
        task: str | None = None,
    ) -> Tensor:
        """Score the pairs of the batch and return the loss."""
        if len(inputs) != 2:
            raise UserError(
                f"{type(self).__name__} needs two text columns, found {len(inputs)}; name the two "
                "to read."
            )
        features = self.model.preprocess(list(zip(*inputs)), prompt=prompt, task=task)
        scores = self.model(batch_to_device(features, self.model.device))["scores"].view(-1)
        return cosent(scores, labels, self.scale)
