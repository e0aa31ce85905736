"""Loads a model that is to be evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from st_jtcse import embedded
from st_jtcse.errors import PoolingNeeded
from st_jtcse.evaluation.jobs import Evaluated
from st_jtcse.evaluation.protocols import protocols
from st_jtcse.hashing import embedding_sha256, weight_files_sha256
from st_jtcse.modules.loading import load_sentence_transformer


def load_model(name: str, **how: Any) -> Evaluated:
    """Load a model for evaluation; `how` are the arguments of
    :func:`st_jtcse.modules.load_sentence_transformer`.

    A published checkpoint that is a plain encoder is pooled as its authors do. Raises UserError.
    """
    place, note = Path(embedded.place(name)), ""
    try:
        model = load_sentence_transformer(name, **how)
    except PoolingNeeded:
        known = next(filter(None, (own.usage(name) for own in protocols())), None)
        if known is None:
            raise
        note = f"{name} {known.told}"
        model = load_sentence_transformer(name, **{**how, **known.how})
    files = weight_files_sha256(place) if place.is_dir() else {}
    return Evaluated(model, name, embedding_sha256(model), files, note)
