"""The towers' poolers as a training-only module."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules import Module

from st_jtcse.errors import UserError


class PoolerModulusHead(Module):
    r"""Pooler outputs p_t = tanh(W_t h_t + b_t) of each tower, for the modulus term.

    When a loss asks for it with the feature ``tower_outputs``, the features also hold ``tower_pooler``, (B, K, H), for
    the K = 2 towers of a twin or the one of an ordinary BERT or RoBERTa (and then ``tower_cls`` too, (B, 1, H)).
    Otherwise the module does nothing, so it costs nothing at inference.

    The poolers are the encoder's own: the head holds no weights, and trains and saves those of the first module.

    Raises:
        UserError: The first module of the model has no pooler.

    Example:
        ::

            from sentence_transformers import SentenceTransformer
            from st_jtcse.modules import PoolerModulusHead, load_sentence_transformer

            encoder, pooling = load_sentence_transformer("bert-base-uncased", pooling="cls")
            model = SentenceTransformer(modules=[encoder, PoolerModulusHead(), pooling])

    References:
        JTCSE (Zong et al.), Eq. 1; TNCSE (Zong et al., AAAI 2025), Table 5 for one tower.
    """

    def __init__(self) -> None:
        super().__init__()
        # A plain tuple: registered as submodules, the poolers would be saved twice.
        self._poolers: tuple[Any, ...] = ()

    def on_model_ready(self, model: BaseModel) -> None:
        """Take the poolers of the model's first module."""
        # An ensemble of whole models has no encoder of its own.
        encoder: Any = getattr(model[0], "model", model[0])
        poolers = tuple(getattr(tower, "pooler", None) for tower in getattr(encoder, "towers", [encoder]))
        if any(pooler is None for pooler in poolers):
            raise UserError(
                f"PoolerModulusHead needs an encoder with a pooler, found {type(encoder).__name__} without one; "
                "load it with its pooling layer, or leave the head out."
            )
        self._poolers = poolers

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add ``tower_pooler`` where ``tower_outputs`` is asked for."""
        if not features.get("tower_outputs"):
            return features
        if "tower_cls" not in features:
            states, starts = features["token_embeddings"], features.get("cu_seq_lens_q")
            # Flattened sentences are one row of tokens, in which each starts at a place of its own.
            features["tower_cls"] = states[:, :1] if starts is None else states[0, starts[:-1]].unsqueeze(1)
        # A pooler reads the first token of a sequence: give it the CLS state as a sequence of one.
        states = features["tower_cls"].split(1, dim=1)
        outputs = [pooler(state) for pooler, state in zip(self._poolers, states, strict=True)]
        features["tower_pooler"] = torch.stack(outputs, dim=1)
        return features

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the (empty) configuration."""
        self.save_config(output_path)
