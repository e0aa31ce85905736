"""What Sentence-Transformers' MatryoshkaLoss needs of a loss: terms that add up, and a say in what is cut.

MatryoshkaLoss runs the loss once for each d of its dimensions. It keeps the first d components of the model's
``sentence_embedding``, and of labels that are as wide as the whole embedding, and adds up the weighted results.
"""

from __future__ import annotations

from sentence_transformers import SentenceTransformer
from torch import Tensor


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
