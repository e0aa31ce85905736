"""What is needed to say why two runs differ."""

from __future__ import annotations

import platform
from importlib.metadata import version

import torch

_PACKAGES = ("st-jtcse", "sentence-transformers", "transformers", "torch", "datasets", "accelerate")


def environment() -> dict[str, str | int]:
    """Return versions, processor and thread count; floating-point sums depend on each."""
    found: dict[str, str | int] = {name: version(name) for name in _PACKAGES}
    found["python"] = platform.python_version()
    found["machine"] = f"{platform.system()} {platform.machine()}"
    found["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    found["threads"] = torch.get_num_threads()
    return found
