"""SimCSE on one sentence column, on the maths of Sentence-Transformers' MultipleNegativesRankingLoss."""

from __future__ import annotations

from typing import Any, Literal, cast

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from st_jtcse.losses.declaration import Count, LossDeclaration, Positive
from st_jtcse.losses.functional import info_nce, nt_xent
from st_jtcse.losses.gradcache import TwoViewLoss
from st_jtcse.losses.views import Terms, gathered, whole_dimension

Candidates = Literal["other_view", "both_views"]


class SimCSELoss(TwoViewLoss, MultipleNegativesRankingLoss):  # type: ignore[misc]  # the forward of the first
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
        mini_batch_size: Rows to encode at once, of the 2B of both views, with gradients cached at the embeddings
            (GradCache): the same loss and gradients in the memory of so many rows, and twice the time. None: all.
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
        mini_batch_size: Count | None = None,
        mini_batch_num_tokens: Count | None = None,
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
        self.mini_batch_size = mini_batch_size
        self.mini_batch_num_tokens = mini_batch_num_tokens
        # Kept, because MatryoshkaLoss cuts what the model gives.
        self._embedding_dimension = whole_dimension(model)

    def compare(self, encoded: dict[str, Tensor], features: dict[str, Any], labels: Tensor | None) -> Tensor | Terms:
        """Return the loss of the two views' embeddings."""
        return self.nce(*encoded["sentence_embedding"].chunk(2))

    def nce(self, a: Tensor, b: Tensor) -> Tensor:
        """Return InfoNCE of the two views' embeddings, (B, H) each."""
        if not self.uses_gradient_cache:
            return self.compute_loss_from_embeddings([a, b])
        a, b = gathered([a, b], self.gather_across_devices)
        form = info_nce if self.candidates == "other_view" else nt_xent
        return form(a, b, self.temperature, self.anchors_at_once)

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
        """Return the loss of the two views' embeddings, (B, H) each."""
        loss = super().compute_loss_from_embeddings(embeddings, cast(Tensor, labels))
        if self.candidates == "other_view":
            return loss
        # The parent scores the rows of its first column only; NT-Xent is the mean over the rows of both.
        swapped = super().compute_loss_from_embeddings(embeddings[::-1], cast(Tensor, labels))
        return (loss + swapped) / 2
