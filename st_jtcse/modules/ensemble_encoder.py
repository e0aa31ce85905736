"""The Sentence-Transformers face of the ensemble encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sentence_transformers.base.modules import Transformer
from transformers import PreTrainedTokenizerBase

from st_jtcse.modules.in_memory import tokenizer_of, transformer_of
from st_jtcse.towers.modeling_ensemble_encoder import EnsembleEncoderConfig, EnsembleEncoderModel, Member


class EnsembleEncoder(Transformer):
    r"""Encoders that share a tokenizer, as the first module of a SentenceTransformer; the embedding is sum_k w_k h_k.

    It is an ordinary Transformer module around an :class:`~st_jtcse.towers.EnsembleEncoderModel`, for inference and for
    teaching. Encoders with tokenizers of their own are summed by :class:`~st_jtcse.modules.MultiTokenizerEnsemble`.

    Args:
        model_name_or_path: Folder or Hub id of a saved ensemble.
        **kwargs: Arguments of Transformer.

    Raises:
        ValueError: The model is no ensemble encoder.

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

    def __init__(self, model_name_or_path: str, **kwargs: Any) -> None:
        super().__init__(model_name_or_path, **kwargs)
        found = self.model.config.model_type
        if found != EnsembleEncoderConfig.model_type:
            raise ValueError(
                f"{model_name_or_path} holds a {found} model, not an ensemble encoder; "
                "build one with EnsembleEncoder.from_members."
            )

    @classmethod
    def from_members(
        cls,
        members: Sequence[Member],
        weights: Sequence[float] | None = None,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        max_seq_length: int | None = None,
        **load_kwargs: Any,
    ) -> EnsembleEncoder:
        """Join encoders; see :meth:`st_jtcse.towers.EnsembleEncoderModel.from_members`.

        Args:
            members: BERT or RoBERTa models, twins, ensembles, folders or Hub ids.
            weights: Factor w_k of each member; 1.0 by default.
            tokenizer: Tokenizer of all members; needed when the first is a model, else its own is taken.
            max_seq_length: Longest input in tokens.
            **load_kwargs: Passed to `from_pretrained` of each folder or Hub id.

        Returns:
            The module.

        Raises:
            ValueError: The members differ, the weights do not match them, or a tokenizer is missing.
        """
        ensemble = EnsembleEncoderModel.from_members(members, weights, **load_kwargs)
        return transformer_of(
            cls,
            ensemble,
            tokenizer_of(members[0], "Members", load_kwargs) if tokenizer is None else tokenizer,
            max_seq_length=max_seq_length,
            attn_implementation=load_kwargs.get("attn_implementation"),
        )
