"""Between the two encoder folders that the papers' authors publish and one saved twin."""

from __future__ import annotations

import os
from typing import Any

from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from st_jtcse.atomic import new_folder
from st_jtcse.errors import UserError
from st_jtcse.modules.inference import save_for_inference
from st_jtcse.modules.joining import tokenizer_of
from st_jtcse.modules.loading import load_config, pooling_of, reading
from st_jtcse.modules.twin_encoder import TwinCrossAttentionEncoder
from st_jtcse.towers import TwinEncoderConfig


def join_towers(
    tower_1: str | os.PathLike[str],
    tower_2: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    pooler_seed: int | None = None,
    **options: Any,
) -> None:
    """Save a twin of two encoders, with CLS pooling; every weight is kept bit by bit.

    Args:
        tower_1: Tower I: folder or Hub id of a BERT or RoBERTa encoder.
        tower_2: Tower II, likewise.
        output: Folder of the twin; it appears whole or not at all.
        pooler_seed: Seed of the poolers of towers that come without; None refuses such towers.
        **options: Arguments of :meth:`~st_jtcse.modules.TwinCrossAttentionEncoder.from_towers`.

    Raises:
        UserError: The towers differ or lack weights, or the output folder holds something.
    """
    with new_folder(output) as folder:
        encoder = TwinCrossAttentionEncoder.from_towers(tower_1, tower_2, pooler_seed=pooler_seed, **options)
        save_for_inference(SentenceTransformer(modules=[encoder, *pooling_of(encoder, "cls")], device="cpu"), folder)


def split_twin(twin: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Save the towers of a twin as plain encoders with tokenizer and pooler; every weight is kept bit by bit.

    Args:
        twin: Folder or Hub id of a saved twin.
        output: Folder of the folders ``tower_1`` and ``tower_2``; it appears whole or not at all.

    Raises:
        UserError: The model is no twin or lacks weights, or the output folder holds something.
    """
    with new_folder(output) as folder:
        found = load_config(twin).model_type
        if found != TwinEncoderConfig.model_type:
            raise UserError(f"{twin} holds a {found} model, not a twin encoder.")
        with reading(twin) as place:
            model, report = AutoModel.from_pretrained(place, output_loading_info=True)
        if report["missing_keys"]:
            raise UserError(f"{twin} lacks the weight {min(report['missing_keys'])!r}; it is no whole twin.")
        tokenizer = tokenizer_of(twin, {})
        for name, tower in zip(("tower_1", "tower_2"), model.to_towers()):
            tower.save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
