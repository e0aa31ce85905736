"""The Sentence-Transformers face of the twin encoder, and its way from two saved encoders and back
to them.
"""

from __future__ import annotations

import os
from typing import Any, Self

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoModel, PreTrainedTokenizerBase
from transformers.utils import logging

from st_jtcse.atomic import new_folder
from st_jtcse.errors import UserError
from st_jtcse.modules.inference import save_for_inference
from st_jtcse.modules.joined_pooling import rows_behind
from st_jtcse.modules.joining import Encoder, JoinedEncoder, tokenizer_of, transformer_of, twin_of
from st_jtcse.modules.loading import load_config, reading, saved_as, try_out
from st_jtcse.modules.model_folders import PLAIN
from st_jtcse.modules.padding import check_padding
from st_jtcse.modules.saved_form import SavedForm, shared_form
from st_jtcse.modules.whole_models import check_length
from st_jtcse.towers import TwinEncoderConfig
from st_jtcse.towers.modeling_tower_pooling import TowerPooling
from st_jtcse.towers.modeling_twin_encoder import CrossResidual

logger = logging.get_logger(__name__)

_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "prompt_length", "cu_seq_lens_q")


class TwinCrossAttentionEncoder(JoinedEncoder):
    r"""Two encoders as the first module of a SentenceTransformer; the embedding is h_I + h_II.

    At inference this is an ordinary Transformer module around a
    :class:`~st_jtcse.towers.TwinEncoderModel`. When a loss asks for it with the feature
    ``tower_outputs``, in whatever mode, the features also hold ``tower_embedding``, (B, 2, H), the
    towers' pooled states, and, if the twin has cross-attention, ``cross_embedding``, (B, 2, H),
    those of the cross streams. The twin pools its towers itself; the Pooling behind it takes the
    one row that there is. Where each tower's embedding is brought to length 1, put ST's Normalize
    last: the sum of two has a length of up to 2.

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

            encoder = TwinCrossAttentionEncoder.from_towers(
                "path/to/encoder_1", "path/to/encoder_2"
            )
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
        pooling: TowerPooling = "cls",
        normalize: bool = False,
        include_prompt: bool = True,
        tokenizer: PreTrainedTokenizerBase | None = None,
        max_seq_length: int | None = None,
        **load_kwargs: Any,
    ) -> Self:
        """Join two encoders of one shape.

        Args:
            tower_1: Tower I: a model, a folder or a Hub id, of any type of encoder or decoder that
                transformers knows.
            tower_2: Tower II, likewise.
            cross_attention_every: k of the cross-attention layers; None for none, which towers of
                the types outside :data:`~st_jtcse.towers.modeling_twin_encoder.CROSSING_TYPES`
                need.
            cross_residual: Residual of the cross stream, see
                :class:`~st_jtcse.towers.TwinEncoderConfig`.
            pooler_seed: Seed of the poolers of towers that come without, which is told once; None
                refuses such towers.
            pooling: How each tower is pooled: cls, mean, first_last, lasttoken or pooler.
            normalize: Whether each tower's embedding is brought to length 1 before they are summed.
            include_prompt: Whether a prompt's tokens count in a mean.
            tokenizer: That of both towers, needed when `tower_1` is a model.
            max_seq_length: Longest input in tokens; None: the tokenizer's.
            **load_kwargs: Passed to `from_pretrained` of each folder or Hub id.

        Raises:
            PoolerNeeded: A tower of a type with poolers has none, and `pooler_seed` is None.
            UserError: The towers differ (the first difference is named), lack weights, or cannot
                cross, or their last token depends on padding.
        """
        form: Any = dict(pooling=pooling, normalize=normalize, include_prompt=include_prompt)
        form |= {"cross_attention_every": cross_attention_every, "cross_residual": cross_residual}
        twin = twin_of(tower_1, tower_2, pooler_seed=pooler_seed, **form, **load_kwargs)
        if tokenizer is None:
            tokenizer = tokenizer_of(tower_1, load_kwargs)
        attention = load_kwargs.get("attn_implementation")
        check_length(twin, max_seq_length)
        encoder = transformer_of(
            cls, twin, tokenizer, max_seq_length=max_seq_length, attn_implementation=attention
        )
        if pooling == "lasttoken":
            check_padding(encoder, Pooling(encoder.get_embedding_dimension(), "cls"))
        return encoder

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add ``token_embeddings``, and the towers' own states where ``tower_outputs`` is asked
        for.
        """
        if not features.get("tower_outputs"):
            return super().forward(features, **kwargs)
        inputs = {key: features[key] for key in _INPUTS if key in features}
        prompt = None if self.model.config.include_prompt else features.get("prompt_length")
        # Known without a look at the batch.
        on_the_right = getattr(self.tokenizer, "padding_side", None) == "right"
        first_counts = True if on_the_right and prompt is None else None
        output = self.model(**inputs, tower_outputs=True, first_counts=first_counts)
        features |= {
            "token_embeddings": output.last_hidden_state,
            "tower_embedding": output.tower_embedding,
        }
        if output.cross_embedding is not None:
            features["cross_embedding"] = output.cross_embedding
        return features

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the twin, or, where it has adapters, those alone."""
        super().save(output_path, *args, **kwargs)
        if getattr(self.model, "peft_config", None) and not self.model.name_or_path:
            logger.warning(
                f"The adapter in {output_path} names no base, because its twin came from no folder "
                "of its own; load it with load_adapter on the saved twin, or add adapters to "
                "TwinCrossAttentionEncoder(folder)."
            )


def join_towers(
    tower_1: str | os.PathLike[str],
    tower_2: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    pooler_seed: int | None = None,
    **options: Any,
) -> None:
    """Save a twin of two folders or Hub ids; the options are ``from_towers``'s.

    The towers are pooled as they are by themselves, plain encoders by CLS.
    Every weight is kept bit by bit; the output folder appears whole or not at all, and must hold
    nothing.
    """
    with new_folder(output) as folder:
        towers = [tower_1, tower_2]
        are_plain = all(saved_as(tower) == PLAIN for tower in towers)
        form = SavedForm() if are_plain else shared_form(towers)
        own: dict[str, Any] = {"pooler_seed": pooler_seed, "max_seq_length": form.max_seq_length}
        options = form.of_towers | own | options
        encoder = TwinCrossAttentionEncoder.from_towers(tower_1, tower_2, **options)
        modules = [encoder, *rows_behind(encoder)]
        model = SentenceTransformer(modules=modules, **form.of_model, device="cpu")
        try_out(model, tower_1)
        save_for_inference(model, folder)


def split_twin(twin: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Save the towers of a twin, a folder or Hub id, as plain encoders in the folders ``tower_1``
    and ``tower_2``.

    Each has tokenizer and pooler. Every weight is kept bit by bit; the output folder appears whole
    or not at all.
    """
    with new_folder(output) as folder:
        found = load_config(twin).model_type
        if found != TwinEncoderConfig.model_type:
            raise UserError(f"{twin} holds a {found} model, not a twin encoder.")
        with reading(twin) as place:
            model = AutoModel.from_pretrained(place, trust_remote_code=False)
        if model.config.bare_layers:
            raise UserError(
                f"{twin} has no LayerNorms in its last layers, which no plain encoder can say; its "
                "towers cannot be taken apart."
            )
        tokenizer = tokenizer_of(twin, {})
        for name, tower in zip(("tower_1", "tower_2"), model.to_towers()):
            tower.save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
