"""The Sentence-Transformers face of the twin encoder."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import logging
from typing_extensions import Self

from st_jtcse.modules.joining import Encoder, JoinedEncoder, tokenizer_of, transformer_of, twin_of
from st_jtcse.towers import TwinEncoderConfig
from st_jtcse.towers.modeling_twin_encoder import CrossResidual

logger = logging.get_logger(__name__)


class TwinCrossAttentionEncoder(JoinedEncoder):
    r"""Two encoders as the first module of a SentenceTransformer; the embedding is h_I + h_II.

    At inference this is an ordinary Transformer module around a
    :class:`~st_jtcse.towers.TwinEncoderModel`. When a loss asks for it with the feature ``tower_outputs``, the features
    also hold

    - ``tower_cls``, (B, 2, H): the towers' CLS states,
    - ``cross_cls``, (B, 2, H): the CLS states of their cross streams, if the twin has cross-attention,

    whether the model is in training or evaluation mode.

    Args:
        model_name_or_path: Folder or Hub id of a saved twin.
        **kwargs: Arguments of Transformer.

    Raises:
        UserError: The model is no twin encoder.

    Example:
        ::

            from sentence_transformers import SentenceTransformer
            from sentence_transformers.sentence_transformer.modules import Pooling
            from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder

            encoder = TwinCrossAttentionEncoder.from_towers("path/to/encoder_1", "path/to/encoder_2")
            pooling = Pooling(encoder.get_embedding_dimension(), "cls")
            model = SentenceTransformer(modules=[encoder, PoolerModulusHead(), pooling])

    References:
        JTCSE (Zong et al.), Sec. III-B, Eq. 7 to 10.
    """

    joined_type = TwinEncoderConfig.model_type
    wanted = "a twin encoder; build one with TwinCrossAttentionEncoder.from_towers"

    @classmethod
    def from_towers(
        cls,
        tower_1: Encoder,
        tower_2: Encoder,
        cross_attention_every: int | None = 2,
        cross_residual: CrossResidual = "stream",
        pooler_seed: int | None = 0,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        max_seq_length: int | None = None,
        **load_kwargs: Any,
    ) -> Self:
        """Join two encoders of one shape by :func:`~st_jtcse.modules.joining.twin_of`, whose arguments these are.

        `tokenizer` is that of both towers, needed when `tower_1` is a model; `max_seq_length` is counted in tokens.
        """
        twin = twin_of(tower_1, tower_2, cross_attention_every, cross_residual, pooler_seed, **load_kwargs)
        tokenizer = tokenizer_of(tower_1, load_kwargs) if tokenizer is None else tokenizer
        return transformer_of(cls, twin, tokenizer, max_seq_length, load_kwargs.get("attn_implementation"))

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add ``token_embeddings``, and the towers' own states where ``tower_outputs`` is asked for."""
        if not features.get("tower_outputs"):
            encoded: dict[str, Any] = super().forward(features, **kwargs)
            return encoded
        inputs = {key: features[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in features}
        output = self.model(**inputs, tower_outputs=True, cls_only=True)
        features["token_embeddings"] = output.last_hidden_state
        features["tower_cls"] = output.tower_cls
        if output.cross_cls is not None:
            features["cross_cls"] = output.cross_cls
        return features

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the twin, or, where it has adapters, those alone."""
        super().save(output_path, *args, **kwargs)
        if getattr(self.model, "peft_config", None) and not self.model.name_or_path:
            logger.warning(
                f"The adapter in {output_path} names no base, because its twin came from no folder of its own; load it "
                "with load_adapter on the saved twin, or add adapters to TwinCrossAttentionEncoder(folder)."
            )
