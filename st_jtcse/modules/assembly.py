"""One model from several: the right ensemble for any members."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from st_jtcse.modules.ensemble_encoder import EnsembleEncoder
from st_jtcse.modules.joining import SUMMED_TYPES, tokenizer_difference
from st_jtcse.modules.loading import load_sentence_transformer, pooling_of
from st_jtcse.modules.multi_tokenizer_ensemble import MultiTokenizerEnsemble
from st_jtcse.pooling_names import PoolingName


def ensemble_of(
    models: Sequence[SentenceTransformer | str | os.PathLike[str]],
    weights: Sequence[float] | None = None,
    *,
    pooling: PoolingName | None = None,
    max_seq_length: int | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> SentenceTransformer:
    """Build the model whose embedding is the weighted sum of the given models' embeddings.

    Models that pool CLS and share a tokenizer become an :class:`~st_jtcse.modules.EnsembleEncoder`; any others become a
    :class:`~st_jtcse.modules.MultiTokenizerEnsemble`.

    Args:
        models: Models, or their folders or Hub ids.
        weights: Factor of each model; 1.0 by default.
        pooling: Pool the encoders in these folders so; None: each model is itself, and a plain encoder is refused.
        max_seq_length: Longest input in tokens; None: each model's own, or the least of them where they become one
            encoder.
        revision: Commit, tag or branch of the Hub models.
        trust_remote_code: Whether to run code that comes with a model.

    Raises:
        UserError: A model cannot be loaded, there is none, the weights do not match, or the embeddings' sizes differ.
    """
    options: dict[str, Any] = dict(pooling=pooling, revision=revision, trust_remote_code=trust_remote_code)
    members = [
        # On the CPU: the ensemble is moved as a whole.
        model if isinstance(model, SentenceTransformer) else load_sentence_transformer(model, device="cpu", **options)
        for model in models
    ]
    if members and _share_a_tokenizer(members):
        # Typed as Any: the modules of an nn.Sequential are of no class that mypy knows.
        encoders: list[Any] = [member[0] for member in members]
        encoder = EnsembleEncoder.from_members(
            [each.model for each in encoders],
            weights,
            tokenizer=encoders[0].tokenizer,
            max_seq_length=max_seq_length or min(each.max_seq_length for each in encoders),
        )
        return SentenceTransformer(modules=[encoder, *pooling_of(encoder, "cls")])
    ensemble = MultiTokenizerEnsemble(members, weights)
    if max_seq_length is not None:
        ensemble.max_seq_length = max_seq_length
    return SentenceTransformer(modules=[ensemble])


def _share_a_tokenizer(members: Sequence[SentenceTransformer]) -> bool:
    if not all(_is_cls_encoder(member) for member in members):
        return False
    configs: list[Any] = [member.config for member in members]
    if len({(config.vocab_size, config.pad_token_id) for config in configs}) > 1:
        return False
    return all(tokenizer_difference(members[0].tokenizer, member.tokenizer) is None for member in members[1:])


def _is_cls_encoder(member: SentenceTransformer) -> bool:
    if len(member) != 2 or not isinstance(member[0], Transformer) or not isinstance(member[1], Pooling):
        return False
    is_plain = member.default_prompt_name is None and member.truncate_dim is None
    return is_plain and member[1].pooling_mode == "cls" and getattr(member.config, "model_type", "") in SUMMED_TYPES
