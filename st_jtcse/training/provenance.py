"""What is needed to say why two runs differ."""

from __future__ import annotations

import platform
from importlib.metadata import version

import torch

from st_jtcse import processes

_PACKAGES = ("st-jtcse", "sentence-transformers", "transformers", "torch", "datasets", "accelerate")


def environment() -> dict[str, str | int]:
    """Return versions, processor, threads and processes; floating-point sums depend on each."""
    found: dict[str, str | int] = {name: version(name) for name in _PACKAGES}
    found["python"] = platform.python_version()
    found["machine"] = f"{platform.system()} {platform.machine()}"
    found["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    found["threads"] = torch.get_num_threads()
    found["processes"] = processes.count()
    return found
