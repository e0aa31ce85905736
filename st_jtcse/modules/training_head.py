"""SimCSE's MLP on the embedding, used in training only."""

from __future__ import annotations

from typing import Any

from sentence_transformers.sentence_transformer.modules import Dense


class TrainingHead(Dense):
    r"""z = tanh(W h + b) in place of the embedding h while the model is in training mode; h
    otherwise.

    A loss sees z; evaluation and inference see h. :func:`~st_jtcse.modules.save_for_inference`
    leaves the head out.

    Args:
        in_features: H, the size of the embedding.
        out_features: Size of z; H in SimCSE.
        **kwargs: Further arguments of Dense.

    Example:
        ::

            from st_jtcse.modules import TrainingHead, load_sentence_transformer

            model = load_sentence_transformer("bert-base-uncased", pooling="cls")
            size = model.get_embedding_dimension()
            model.append(TrainingHead(size, size))

    References:
        Gao et al., SimCSE, EMNLP 2021, Sec. 3 (the MLP is kept in training and dropped at test
        time).
    """

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Replace ``sentence_embedding`` in training mode."""
        if self.training:
            return super().forward(features)
        return features

    def get_embedding_dimension(self) -> int:
        """Return H: what the model's users get."""
        return int(self.in_features)
