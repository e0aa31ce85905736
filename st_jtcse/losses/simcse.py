"""SimCSE on one sentence column, on the maths of Sentence-Transformers' MultipleNegativesRankingLoss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, cast

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from st_jtcse.losses.declaration import Count, DeclaredLoss, LossDeclaration, Positive
from st_jtcse.losses.views import Terms, encode_views, single_column, whole_dimension

Candidates = Literal["other_view", "both_views"]


class SimCSELoss(DeclaredLoss, MultipleNegativesRankingLoss):
    r"""InfoNCE between two dropout views of each sentence.

    .. math:: L = -\frac{1}{B} \sum_i \log \frac{e^{sim(h_i^a, h_i^b) / \tau}}{\sum_c e^{sim(h_i^a, h_c) / \tau}}

    The views are made inside: the column is tokenised once and both views go through one forward pass. The rest is
    :class:`~sentence_transformers.sentence_transformer.losses.MultipleNegativesRankingLoss`, gathering included.

    Args:
        model: The model to train; its dropout makes the views.
        temperature: τ > 0.
        candidates: ``"other_view"``: the B rows of view b, as in SimCSE. ``"both_views"``: NT-Xent, the 2B - 1
            other rows of both views, averaged over the rows of both, as in the JTCSE and TNCSE code.
        gather_across_devices: Whether candidates come from all processes.
        length_chunks: Chunks of similar length to encode a batch in; None: 4 on the CPU, else 1. The loss is the same.

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
        :class:`~st_jtcse.losses.JTCSELoss`.

    Example:
        ::

            from datasets import Dataset
            from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
            from st_jtcse.losses import SimCSELoss

            model = SentenceTransformer("bert-base-uncased")
            train_dataset = Dataset.from_dict({"sentence": ["It is sunny today.", "He drove to work."]})
            SentenceTransformerTrainer(model, train_dataset=train_dataset, loss=SimCSELoss(model)).train()

    References:
        Gao et al., SimCSE, EMNLP 2021, Eq. 4; JTCSE (Zong et al.), Eq. 11.
    """

    declaration = LossDeclaration(sentences=True, views="made", any_views=True, in_batch=True, cards={(): "simcse"})
    citation = """
@inproceedings{gao2021simcse,
    title = {{SimCSE}: Simple Contrastive Learning of Sentence Embeddings},
    author = {Gao, Tianyu and Yao, Xingcheng and Chen, Danqi}, booktitle = {Proceedings of EMNLP}, year = {2021},
}
"""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: Positive = 0.05,
        candidates: Candidates = "other_view",
        gather_across_devices: bool = False,
        length_chunks: Count | None = None,
    ) -> None:
        SimCSELoss.check(temperature=temperature, candidates=candidates, length_chunks=length_chunks)
        super().__init__(
            model,
            scale=1 / temperature,
            gather_across_devices=gather_across_devices,
            directions=("query_to_doc", "query_to_query") if candidates == "both_views" else ("query_to_doc",),
        )
        self.candidates = candidates
        self.length_chunks = length_chunks
        # Kept, because MatryoshkaLoss cuts what the model gives.
        self._embedding_dimension = whole_dimension(model)

    def forward(  # type: ignore[override]  # ST's trainer sums the terms of a dict
        self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None
    ) -> Tensor | Terms:
        """Encode both views of the batch and return the loss, or its weighted terms by name."""
        features = single_column(sentence_features, self)
        view_a, view_b = encode_views(self.model, features, self.length_chunks)["sentence_embedding"].chunk(2)
        return self._compare(view_a, view_b, features, labels)

    def _compare(self, a: Tensor, b: Tensor, features: dict[str, Any], labels: Tensor | None) -> Tensor | Terms:
        return self.compute_loss_from_embeddings([a, b], labels)

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
        """Return the loss of the two views' embeddings, (B, H) each."""
        loss = super().compute_loss_from_embeddings(embeddings, cast(Tensor, labels))
        if self.candidates == "other_view":
            return loss
        # The parent scores the rows of its first column only; NT-Xent is the mean over the rows of both.
        swapped = super().compute_loss_from_embeddings(embeddings[::-1], cast(Tensor, labels))
        return (loss + swapped) / 2
