"""From a training pipeline to the saved format that loads anywhere."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from st_jtcse.modules.pooler_head import PoolerModulusHead
from st_jtcse.modules.twin_encoder import TwinCrossAttentionEncoder


def save_for_inference(model: SentenceTransformer, path: str | os.PathLike[str], **kwargs: Any) -> None:
    """Save a model so that its `modules.json` names only modules of Sentence-Transformers.

    Sentence-Transformers refuses other classes without ``trust_remote_code``. The twin's module is saved as the
    Transformer that it is at inference, and the training-only head is left out; its poolers are saved with the towers.

    Args:
        model: The model, from a training pipeline of this package or any other.
        path: Folder to write; created if missing.
        **kwargs: Arguments of ``SentenceTransformer.save_pretrained``.
    """
    model.save_pretrained(os.fspath(path), **kwargs)
    listing = Path(path, "modules.json")
    kept: list[dict[str, Any]] = []
    for entry, module in zip(json.loads(listing.read_text(encoding="utf-8")), model):
        if isinstance(module, PoolerModulusHead):
            shutil.rmtree(Path(path, entry["path"]))
            continue
        if isinstance(module, TwinCrossAttentionEncoder):
            entry["type"] = "sentence_transformers.base.modules.transformer.Transformer"
        kept.append(entry | {"idx": len(kept), "name": str(len(kept))})
    listing.write_text(json.dumps(kept, indent=2), encoding="utf-8")


def to_inference(model: SentenceTransformer) -> SentenceTransformer:
    """Return the model as anyone would load it: ST's own modules only, ready to save, push or encode.

    Args:
        model: The trained pipeline; left as it is.

    Returns:
        A new model with the same weights, on the same device.
    """
    with tempfile.TemporaryDirectory() as folder:
        save_for_inference(model, folder, create_model_card=False)
        loaded = SentenceTransformer(folder, device=str(model.device))
    loaded.model_card_data = model.model_card_data
    return loaded
