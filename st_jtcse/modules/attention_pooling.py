"""Attention pooling: a learned mean over tokens."""

from __future__ import annotations

from typing import Any, Self

import torch
from sentence_transformers.base.modules import Module
from sentence_transformers.util.tensor import repad_flattened_features
from torch import nn


class AttentionPooling(Module):
    r"""Weighted mean of the token embeddings, with learned weights.

    .. math:: e = \sum_t a_t h_t, \quad a = \mathrm{softmax}_t (v^\top \tanh(W h_t + b))

    It begins as the mean over tokens: v is zero at first, W and b are drawn.

    Sentence-Transformers has no such module, so a model with this one loads with
    ``SentenceTransformer(path, trust_remote_code=True)`` where this package is installed.

    Args:
        embedding_dimension: H, the size of the token embeddings.

    Inputs:
        ``token_embeddings``, (B, T, H), and ``attention_mask``, (B, T); the result is
        ``sentence_embedding``, (B, H).

    Example:
        ::

            from st_jtcse.modules import AttentionPooling, load_sentence_transformer

            model = load_sentence_transformer("bert-base-uncased", pooling="attention")
            assert isinstance(model[1], AttentionPooling)

    References:
        LS-RNS (*Symmetry* 2025, 17(5), 646), Table 6, names attention pooling without an equation;
        this is the form of Yang et al., Hierarchical Attention Networks for Document
        Classification, NAACL 2016, Eq. 5 to 7.
    """

    config_keys = ["embedding_dimension"]  # noqa: RUF012  # ST's own spelling of this attribute

    def __init__(self, embedding_dimension: int) -> None:
        super().__init__()
        self.embedding_dimension = embedding_dimension
        self.projection = nn.Linear(embedding_dimension, embedding_dimension)
        self.context = nn.Linear(embedding_dimension, 1, bias=False)
        nn.init.zeros_(self.context.weight)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add ``sentence_embedding``."""
        given = features
        if (
            "cu_seq_lens_q" in features
        ):  # Flattened sentences, without padding: one row of all tokens.
            given = repad_flattened_features(dict(features))
        tokens = given["token_embeddings"]
        scores = self.context(torch.tanh(self.projection(tokens)))  # (B, T, 1)
        padding = given["attention_mask"].unsqueeze(-1) == 0
        weights = scores.float().masked_fill(padding, float("-inf")).softmax(dim=1)
        features["sentence_embedding"] = (weights.to(tokens.dtype) * tokens).sum(dim=1)
        return features

    def get_embedding_dimension(self) -> int:
        """Return H."""
        return self.embedding_dimension

    def save(
        self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any
    ) -> None:
        """Write configuration and weights."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", *args: Any, **kwargs: Any) -> Self:
        """Read a saved module."""
        hub = {
            key: kwargs[key]
            for key in ("token", "cache_folder", "revision", "local_files_only")
            if key in kwargs
        }
        own = super().load(model_name_or_path, subfolder=subfolder, **hub)
        return cls.load_torch_weights(model_name_or_path, subfolder=subfolder, model=own, **hub)
