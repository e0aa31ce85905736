"""The Sentence-Transformers face of the ensemble encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase
from typing_extensions import Self

from st_jtcse.modules.joining import Encoder, JoinedEncoder, ensemble_encoder_of, tokenizer_of, transformer_of
from st_jtcse.towers import EnsembleEncoderConfig


class EnsembleEncoder(JoinedEncoder):
    r"""Encoders that share a tokenizer, as the first module of a SentenceTransformer; the embedding is sum_k w_k h_k.

    It is an ordinary Transformer module around an :class:`~st_jtcse.towers.EnsembleEncoderModel`, for inference and for
    teaching. Encoders with tokenizers of their own are summed by :class:`~st_jtcse.modules.MultiTokenizerEnsemble`.

    Args:
        model_name_or_path: Folder or Hub id of a saved ensemble.
        **kwargs: Arguments of Transformer.

    Raises:
        UserError: The model is no ensemble encoder.

    Example:
        ::

            from sentence_transformers import SentenceTransformer
            from sentence_transformers.sentence_transformer.modules import Pooling
            from st_jtcse.modules import EnsembleEncoder, save_for_inference

            encoder = EnsembleEncoder.from_members(["path/to/encoder_1", "path/to/encoder_2"], [0.3, 0.7])
            pooling = Pooling(encoder.get_embedding_dimension(), "cls")
            save_for_inference(SentenceTransformer(modules=[encoder, pooling]), "my-ensemble")

    References:
        Zong and Zhang, EDFSE, AAAI 2023 (six encoders, w_k = 1); JTCSE (Zong et al.), fusion with another unsupervised
        checkpoint (w = 0.3, 0.3, 0.7).
    """

    joined_type = EnsembleEncoderConfig.model_type
    wanted = "an ensemble encoder; build one with EnsembleEncoder.from_members"

    @classmethod
    def from_members(
        cls,
        members: Sequence[Encoder],
        weights: Sequence[float] | None = None,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        max_seq_length: int | None = None,
        **load_kwargs: Any,
    ) -> Self:
        """Join encoders by :func:`~st_jtcse.modules.joining.ensemble_encoder_of`, whose arguments these are.

        `tokenizer` is that of all members, needed when the first is a model; `max_seq_length` is counted in tokens.
        """
        ensemble = ensemble_encoder_of(members, weights, **load_kwargs)
        tokenizer = tokenizer_of(members[0], load_kwargs) if tokenizer is None else tokenizer
        return transformer_of(cls, ensemble, tokenizer, max_seq_length, load_kwargs.get("attn_implementation"))
