"""The towers' poolers as a training-only module."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules import Module
from sentence_transformers.sentence_transformer.modules import Pooling

from st_jtcse.errors import PoolerNeeded


class PoolerModulusHead(Module):
    r"""Pooler outputs p_t = tanh(W_t h_t + b_t) of each tower, for the modulus term.

    When a loss asks for it with the feature ``tower_outputs``, the features also hold
    ``tower_pooler``, (B, K, H), for the K = 2 towers of a twin or the one of an ordinary encoder
    (and then ``tower_embedding`` too, (B, 1, H): what the Pooling behind the head makes of its
    tokens). h_t is a tower's pooled state; where the pooler itself makes it, or the twin's last
    layers have no LayerNorms, p_t is h_t. Otherwise
    the module does nothing, so it costs nothing at inference.

    The poolers are the encoder's own: the head holds no weights, and trains and saves those of the
    first module.

    Raises:
        PoolerNeeded: The first module of the model has no pooler.

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
        # Plain tuples: registered as submodules, they would be saved twice.
        self._encoder: tuple[Any, ...] = ()
        self._poolers: tuple[Any, ...] = ()
        self._pooling: tuple[Any, ...] = ()

    def on_model_ready(self, model: BaseModel) -> None:
        """Take the poolers of the model's first module."""
        # An ensemble of whole models has no encoder of its own.
        encoder: Any = getattr(model[0], "model", model[0])
        self._poolers = ()
        if hasattr(encoder, "tower_poolers"):
            self._poolers = encoder.tower_poolers()
        elif hasattr(getattr(encoder, "pooler", None), "dense"):
            self._poolers = (encoder.pooler,)
        if not self._poolers:
            raise PoolerNeeded(
                f"PoolerModulusHead needs an encoder with a pooler, found {type(encoder).__name__} "
                "without one",
                "load it with its pooling layer, or leave the head out",
            )
        behind = list(model)[list(model).index(self) + 1 :]
        places = [place for place, part in enumerate(behind, 1) if isinstance(part, Pooling)]
        self._encoder, self._pooling = (encoder,), tuple(behind[: min(places, default=0)])

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add ``tower_pooler`` where ``tower_outputs`` is asked for."""
        if not features.get("tower_outputs"):
            return features
        if "tower_embedding" not in features:
            states = dict(features)
            for module in self._pooling:
                states = module(states)
            pooled = states.get("sentence_embedding", states["token_embeddings"][:, 0])
            features["tower_embedding"] = pooled[:, None]
        config = self._encoder[0].config
        # Without its last LayerNorms a state has a modulus of its own, which the term then reads.
        if getattr(config, "pooling", None) == "pooler" or getattr(config, "bare_layers", 0):
            features["tower_pooler"] = features["tower_embedding"]
            return features
        # A pooler reads the first token of a sequence: give it the pooled state as a sequence of
        # one.
        states = features["tower_embedding"].split(1, dim=1)
        outputs = [pooler(state) for pooler, state in zip(self._poolers, states, strict=True)]
        features["tower_pooler"] = torch.stack(outputs, dim=1)
        return features

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the (empty) configuration."""
        self.save_config(output_path)
