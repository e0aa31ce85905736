"""Hashes of files, of models in memory, and of all that decides a model's embeddings."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from torch import nn
from transformers import PreTrainedModel

# Part of a configuration that says where and by what a model was saved, not what it computes.
_CIRCUMSTANCES = ("_name_or_path", "transformers_version", "architectures", "auto_map")
_LENGTHS = ("truncation", "padding")


def sha256(path: Path) -> str:
    """Return a file's SHA-256 as hexadecimal digits."""
    return hash_of(path).hexdigest()


def hash_of(path: Path, size: int | None = None) -> hashlib._Hash:
    """Return the SHA-256 of a file's first bytes, by default of all."""
    digest, left = hashlib.sha256(), path.stat().st_size if size is None else size
    with path.open("rb") as file:
        while block := file.read(min(left, 1 << 20)):
            digest.update(block)
            left -= len(block)
    return digest


def weights_sha256(module: nn.Module) -> str:
    """Return the SHA-256 of a module's parameters and buffers: names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def weight_files_sha256(folder: Path) -> dict[str, str]:
    """Return the hash of every weight file of a saved model, by its path in the folder."""
    return {
        path.relative_to(folder).as_posix(): sha256(path)
        for path in sorted(folder.rglob("*.safetensors"))
    }


def setting_files_sha256(folder: Path) -> dict[str, str]:
    """Return the hash of every other file of a saved model: configurations, vocabularies, modelling
    files.
    """
    others = (
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in (".safetensors", ".md")
    )
    return {path.relative_to(folder).as_posix(): sha256(path) for path in others}


def embedding_sha256(model: SentenceTransformer) -> str:
    """Return the SHA-256 of all that decides a model's embeddings: weights, pooling and other
    settings, tokenizers.

    Two models with the same weights and another pooling are two models.
    """
    settings: list[str] = []
    for module in model.modules():
        # The model itself, and whole models that are its members.
        if isinstance(module, SentenceTransformer):
            own = [module.prompts, module.default_prompt_name, module.truncate_dim]
            own += [module.similarity_fn_name, module.max_seq_length]
            settings += map(_json, own)
        elif isinstance(module, PreTrainedModel):
            config = module.config.to_diff_dict()
            settings.append(
                _json({key: value for key, value in config.items() if key not in _CIRCUMSTANCES})
            )
        elif isinstance(module, Module):
            settings.append(_json([type(module).__name__, module.get_config_dict()]))
            settings.append(_tokenizer_state(getattr(module, "tokenizer", None)))
    digest = hashlib.sha256(weights_sha256(model).encode())
    digest.update(f"[{', '.join(settings)}]".encode())
    return digest.hexdigest()


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _tokenizer_state(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        if hasattr(tokenizer, "get_vocab"):
            return _json(tokenizer.get_vocab())
        return _json(None)
    return _without_lengths(backend.to_str())


# A run has many models with one tokenizer, and a vocabulary takes longer than the weights.
@lru_cache(maxsize=8)
def _without_lengths(tokenizer: str) -> str:
    """Return a tokenizer without its truncation and padding, which encoding sets anew each time."""
    state = json.loads(tokenizer)
    return _json({key: value for key, value in state.items() if key not in _LENGTHS})
