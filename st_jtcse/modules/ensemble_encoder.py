"""The Sentence-Transformers face of the ensemble encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from transformers import PreTrainedTokenizerBase

from st_jtcse.modules.joining import (
    Encoder,
    JoinedEncoder,
    ensemble_encoder_of,
    tokenizer_of,
    transformer_of,
)
from st_jtcse.towers import EnsembleEncoderConfig
from st_jtcse.towers.modeling_tower_pooling import TowerPooling


class EnsembleEncoder(JoinedEncoder):
    r"""Encoders that share a tokenizer, as the first module of a SentenceTransformer; the embedding
    is sum_k w_k h_k.

    It is an ordinary Transformer module around an :class:`~st_jtcse.towers.EnsembleEncoderModel`,
    for inference and for teaching. Encoders with tokenizers of their own are summed by
    :class:`~st_jtcse.modules.MultiTokenizerEnsemble`.

    Args:
        model_name_or_path: Folder or Hub id of a saved ensemble.
        **kwargs: Arguments of Transformer.

    Raises:
        UserError: The model is no ensemble encoder.

    Example:
        ::

            from st_jtcse.modules import ensemble_of, save_for_inference

            # Its first module is an EnsembleEncoder.
            model = ensemble_of(
                ["path/to/encoder_1", "path/to/encoder_2"], [0.3, 0.7], pooling="cls"
            )
            save_for_inference(model, "my-ensemble")

    References:
        Zong and Zhang, EDFSE, AAAI 2023 (six encoders, w_k = 1); JTCSE (Zong et al.), fusion with
        another unsupervised checkpoint (w = 0.3, 0.3, 0.7).
    """

    joined_type = EnsembleEncoderConfig.model_type
    wanted = "an ensemble encoder; build one with EnsembleEncoder.from_members"

    @classmethod
    def from_members(
        cls,
        members: Sequence[Encoder],
        weights: Sequence[float] | None = None,
        *,
        pooling: TowerPooling = "cls",
        normalize: bool = False,
        include_prompt: bool = True,
        tokenizer: PreTrainedTokenizerBase | None = None,
        max_seq_length: int | None = None,
        **load_kwargs: Any,
    ) -> Self:
        """Join encoders that share a tokenizer, in the first one's dtype.

        Args:
            members: Models, folders or Hub ids, of any types that transformers knows. A twin counts
                as its two towers, an ensemble as its members, their weights multiplied by the one
                given here.
            weights: Factor w_k of each member; 1.0 by default.
            pooling: How each member is pooled: cls, mean, first_last or lasttoken.
            normalize: Whether each member's embedding is brought to length 1 before they are
                summed.
            include_prompt: Whether a prompt's tokens count in a mean.
            tokenizer: That of all members, needed when the first is a model.
            max_seq_length: Longest input in tokens; None: the tokenizer's.
            **load_kwargs: Passed to `from_pretrained` of each folder or Hub id.

        Raises:
            UserError: There is no member, the weights do not match, or the members differ in size,
                vocabulary, tokenizer or pooling; the first difference is named.
        """
        form: Any = dict(pooling=pooling, normalize=normalize, include_prompt=include_prompt)
        ensemble = ensemble_encoder_of(members, weights, **form, **load_kwargs)
        if tokenizer is None:
            tokenizer = tokenizer_of(members[0], load_kwargs)
        attention = load_kwargs.get("attn_implementation")
        return transformer_of(
            cls, ensemble, tokenizer, max_seq_length=max_seq_length, attn_implementation=attention
        )
