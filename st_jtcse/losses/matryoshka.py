"""What Sentence-Transformers' MatryoshkaLoss needs of a loss: terms that add up, and a say in what is cut.

MatryoshkaLoss runs the loss once for each d of its dimensions. It keeps the first d components of the model's
``sentence_embedding``, and of labels that are as wide as the whole embedding, and adds up the weighted results.
"""

from __future__ import annotations

from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_jtcse.errors import UserError


class Terms(dict[str, Tensor]):
    """The terms of a loss by name, which weighs and adds up as a plain loss does."""

    def __rmul__(self, weight: float) -> Terms:
        return Terms({name: weight * value for name, value in self.items()})

    def __add__(self, other: Terms) -> Terms:
        return Terms({name: value + other[name] for name, value in self.items()})

    def __radd__(self, start: float) -> Terms:
        return Terms({name: start + value for name, value in self.items()})


def whole_dimension(model: SentenceTransformer) -> int | None:
    """Return the size of the embeddings that the model gives its loss: `truncate_dim` cuts those of `encode` only."""
    with model.truncate_embeddings(None):
        dimension: int | None = model.get_embedding_dimension()
    return dimension


def cut_as_embedding(rows: Tensor, embedding: Tensor, whole: int | None) -> Tensor:
    """Keep as many components of the towers' states, (N, K, H), as MatryoshkaLoss left of the embedding, (N, d).

    Raises UserError where an embedding of another `whole` size was cut: it is not a sum of the states, so that its
    first components are not theirs.
    """
    left = embedding.shape[-1]
    if left == whole:
        return rows
    if whole != rows.shape[-1]:
        raise UserError(
            f"MatryoshkaLoss around JTCSELoss needs embeddings of the towers' size, {rows.shape[-1]}, found {whole}; "
            "leave out the module behind the pooling that changes it."
        )
    return rows[..., :left]


def refuse_cut_labels(labels: Tensor | None, whole: int | None) -> None:
    """Refuse teacher vectors, (B, D), that MatryoshkaLoss cut: they no longer give the teacher's similarities.

    It cuts labels that are as wide as the model's `whole` embeddings.
    """
    # A slice keeps the stride of what it was cut from.
    if labels is not None and labels.dim() == 2 and labels.stride(0) == whole and labels.shape[1] < whole:
        raise UserError(
            "MatryoshkaLoss cuts labels that are as wide as the model's embeddings, and teacher vectors cut to "
            f"{labels.shape[1]} components no longer give the teacher's similarities; append a zero to each vector, "
            "which changes none."
        )
