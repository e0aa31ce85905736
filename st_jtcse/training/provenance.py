"""What is needed to say why two runs differ."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import torch

from st_jtcse.hashing import sha256

_PACKAGES = ("st-jtcse", "sentence-transformers", "transformers", "torch", "datasets", "accelerate")


def environment() -> dict[str, str | int]:
    """Return versions, processor and thread count; floating-point sums depend on each."""
    found: dict[str, str | int] = {name: version(name) for name in _PACKAGES}
    found["python"] = platform.python_version()
    found["machine"] = f"{platform.system()} {platform.machine()}"
    found["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    found["threads"] = torch.get_num_threads()
    return found


def weights_sha256(folder: Path) -> dict[str, str]:
    """Return the hash of every weight file of a saved model, by its path in the folder."""
    return {path.relative_to(folder).as_posix(): sha256(path) for path in sorted(folder.rglob("*.safetensors"))}
