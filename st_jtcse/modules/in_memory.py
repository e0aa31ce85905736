"""A Transformer module from a model that is in memory."""

from __future__ import annotations

import os
import tempfile
from typing import Any, TypeVar

from safetensors.torch import save_file
from sentence_transformers.base.modules import Transformer
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

Module = TypeVar("Module", bound=Transformer)


def transformer_of(
    module: type[Module],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_seq_length: int | None = None,
    attn_implementation: str | None = None,
) -> Module:
    """Build a Transformer module around a model and its tokenizer, which are copied.

    Args:
        module: Transformer, or a subclass of it.
        model: The model.
        tokenizer: Its tokenizer.
        max_seq_length: Longest input in tokens; None keeps the tokenizer's.
        attn_implementation: As for ``from_pretrained``.

    Returns:
        The module.
    """
    # Transformer builds itself from a folder only. The parts are written one by one, because save_pretrained
    # writes nothing in the other processes of a distributed run.
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        save_file(model.state_dict(), os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        tokenizer.save_pretrained(folder)
        built = module(
            folder,
            max_seq_length=max_seq_length,
            model_kwargs={"dtype": model.dtype, "attn_implementation": attn_implementation},
        )
    # The folder is gone: an adapter that named it as its base could not be loaded.
    built.model.name_or_path = ""
    return built


def tokenizer_of(
    source: PreTrainedModel | str | os.PathLike[str], kind: str, load_kwargs: dict[str, Any]
) -> PreTrainedTokenizerBase:
    """Load the tokenizer stored beside a model.

    Args:
        source: Folder or Hub id.
        kind: What the model is called in the message, in the plural.
        load_kwargs: Arguments of ``from_pretrained``, of which the tokenizer takes its own.

    Returns:
        The tokenizer.

    Raises:
        ValueError: The source is a model, which has no tokenizer.
    """
    if isinstance(source, PreTrainedModel):
        raise ValueError(f"{kind} given as models come without a tokenizer; pass tokenizer=.")
    hub = {key: load_kwargs[key] for key in ("revision", "trust_remote_code") if key in load_kwargs}
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, **hub)
    return tokenizer
