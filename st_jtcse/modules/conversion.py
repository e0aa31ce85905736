"""Between the two encoder folders that the papers' authors publish and one saved twin."""

from __future__ import annotations

import os

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoModel

from st_jtcse.atomic import new_folder
from st_jtcse.errors import UserError
from st_jtcse.modules.inference import save_for_inference
from st_jtcse.modules.joining import tokenizer_of
from st_jtcse.modules.loading import load_config, reading
from st_jtcse.modules.twin_encoder import TwinCrossAttentionEncoder
from st_jtcse.towers import TwinEncoderConfig
from st_jtcse.towers.modeling_twin_encoder import CrossResidual

TOWER_FOLDERS = ("tower_1", "tower_2")


def join_towers(
    tower_1: str | os.PathLike[str],
    tower_2: str | os.PathLike[str],
    output: str | os.PathLike[str],
    cross_attention_every: int | None = 2,
    cross_residual: CrossResidual = "stream",
    *,
    max_seq_length: int | None = None,
    pooler_seed: int | None = None,
) -> None:
    """Save a twin with CLS pooling of two folders or Hub ids, by ``from_towers``, whose arguments these are.

    Every weight is kept bit by bit; the output folder appears whole or not at all, and must hold nothing.
    """
    with new_folder(output) as folder:
        encoder = TwinCrossAttentionEncoder.from_towers(
            tower_1, tower_2, cross_attention_every, cross_residual, pooler_seed, max_seq_length=max_seq_length
        )
        pooling = Pooling(encoder.get_embedding_dimension(), "cls")
        save_for_inference(SentenceTransformer(modules=[encoder, pooling], device="cpu"), folder)


def split_twin(twin: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Save the towers of a twin, a folder or Hub id, as plain encoders in the folders ``tower_1`` and ``tower_2``.

    Each has tokenizer and pooler. Every weight is kept bit by bit; the output folder appears whole or not at all.
    """
    with new_folder(output) as folder:
        found = load_config(twin).model_type
        if found != TwinEncoderConfig.model_type:
            raise UserError(f"{twin} holds a {found} model, not a twin encoder.")
        with reading(twin):
            model, report = AutoModel.from_pretrained(twin, output_loading_info=True)
        if report["missing_keys"]:
            raise UserError(f"{twin} lacks the weight {min(report['missing_keys'])!r}; it is no whole twin.")
        tokenizer = tokenizer_of(twin, {})
        for name, tower in zip(TOWER_FOLDERS, model.to_towers()):
            tower.save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
