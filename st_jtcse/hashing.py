"""Hashes of files and of models in memory."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import nn


def sha256(path: Path) -> str:
    """Return a file's SHA-256 as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def weights_sha256(module: nn.Module) -> str:
    """Return the SHA-256 of a module's parameters and buffers: names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def weight_files_sha256(folder: Path) -> dict[str, str]:
    """Return the hash of every weight file of a saved model, by its path in the folder."""
    return {path.relative_to(folder).as_posix(): sha256(path) for path in sorted(folder.rglob("*.safetensors"))}
