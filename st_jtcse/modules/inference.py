"""From a training pipeline to the saved format that loads anywhere."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from st_jtcse.modules.joined_pooling import check_pooling
from st_jtcse.modules.joining import JOINED_TYPES, JoinedEncoder
from st_jtcse.modules.model_folders import MODULES, own_class, read_listing
from st_jtcse.modules.pooler_head import PoolerModulusHead
from st_jtcse.modules.training_head import TrainingHead

IMPORT_OR_FLAG = (
    "After `pip install st-jtcse`, and `import st_jtcse` in the program, this model loads as shown "
    "below; without the package it loads with `SentenceTransformer(path, trust_remote_code=True)`."
)
FLAG_NEEDED = (
    "This model loads with `SentenceTransformer(path, trust_remote_code=True)` where `pip install "
    "st-jtcse` was run."
)


def save_for_inference(
    model: SentenceTransformer, path: str | os.PathLike[str], **kwargs: Any
) -> None:
    """Save a model so that its `modules.json` names only modules of Sentence-Transformers, wherever
    it can.

    Sentence-Transformers refuses other classes without ``trust_remote_code``. The twin's module, or
    the ensemble's, is saved as the Transformer that it is at inference, and the training-only head
    is left out; its poolers are saved with the towers. The model card says how the model loads.

    Args:
        model: The model, from a training pipeline of this package or any other.
        path: Folder to write; created if missing.
        **kwargs: Arguments of ``SentenceTransformer.save_pretrained``.

    Raises:
        UserError: A Pooling reads more rows than a twin or an ensemble gives.
    """
    check_pooling(model)
    model.save_pretrained(os.fspath(path), **kwargs)
    kept: list[dict[str, Any]] = []
    for entry, module in zip(read_listing(path), model):
        if isinstance(module, (PoolerModulusHead, TrainingHead)):
            shutil.rmtree(Path(path, entry["path"]))
            continue
        if isinstance(module, JoinedEncoder):
            entry["type"] = "sentence_transformers.base.modules.transformer.Transformer"
        kept.append(entry | {"idx": len(kept), "name": str(len(kept))})
    Path(path, MODULES).write_text(json.dumps(kept, indent=2), encoding="utf-8")
    # By name: a class that was loaded from a model's own folder is another one.
    is_joined = getattr(model.config, "model_type", None) in JOINED_TYPES
    sentence = IMPORT_OR_FLAG if is_joined else ""
    if own_class(path):
        sentence = FLAG_NEEDED
    card = Path(path, "README.md")
    text = card.read_text(encoding="utf-8") if card.exists() else sentence
    if sentence not in text:
        before, heading, after = text.partition("## Usage\n")
        card.write_text(f"{before}{heading or '## Usage'}\n{sentence}\n{after}", encoding="utf-8")


def to_inference(model: SentenceTransformer) -> SentenceTransformer:
    """Return the model as anyone would load it: ST's own modules only, ready to save, push or
    encode.

    Args:
        model: The trained pipeline; left as it is.

    Returns:
        A new model with the same weights, on the same device.
    """
    with tempfile.TemporaryDirectory() as folder:
        save_for_inference(model, folder, create_model_card=False)
        # Where a class that is not ST's own is left, it is that of the model in memory: its code
        # has run already.
        flag = any(
            not entry["type"].startswith("sentence_transformers.") for entry in read_listing(folder)
        )
        loaded = SentenceTransformer(folder, device=str(model.device), trust_remote_code=flag)
    loaded.model_card_data = model.model_card_data
    return loaded
