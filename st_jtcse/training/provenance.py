"""What is needed to say why two runs differ."""

from __future__ import annotations

import functools
import platform
from importlib.metadata import version

import torch

from st_jtcse import processes

_PACKAGES = ("st-jtcse", "sentence-transformers", "transformers", "torch", "datasets", "accelerate")


@functools.cache
def _versions() -> dict[str, str]:
    """Return the packages' versions, which are read from files: a checkpoint asks for them each
    time.
    """
    return {name: version(name) for name in _PACKAGES}


def environment() -> dict[str, str | int]:
    """Return versions, processor, threads and processes; floating-point sums depend on each."""
    found: dict[str, str | int] = {**_versions()}
    found["python"] = platform.python_version()
    found["machine"] = f"{platform.system()} {platform.machine()}"
    found["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    found["threads"] = torch.get_num_threads()
    found["processes"] = processes.count()
    return found
