"""What bf16 means on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers.utils import is_torch_bf16_gpu_available

_FLAGS = Path("/proc/cpuinfo")


def hint(message: str) -> str:
    """Return what to add to the trainer's refusal of arguments, where it is about bf16 on a CPU."""
    if "bf16" not in message or torch.accelerator.is_available():
        return ""
    told = gain()
    return f" On a CPU bf16 needs args.use_cpu: true{f'; {told}' if told else ''}."


def choice() -> dict[str, Any]:
    """Return the training arguments that ``bf16: auto`` stands for: true where the machine computes in bf16 itself."""
    if torch.accelerator.is_available():
        return {"bf16": is_torch_bf16_gpu_available()}
    return {"bf16": True, "use_cpu": True} if _own() else {"bf16": False}


def gain() -> str:
    """Say whether this processor computes in bf16 itself; nothing where that cannot be known or does not matter."""
    own = None if torch.accelerator.is_available() else _own()
    if own is None:
        return ""
    if own:
        return f"this processor supports bf16 ({own}), which makes steps faster"
    return "this processor does not support bf16, so bf16 makes steps slower"


def _own() -> str | None:
    """Return the processor's flag of bf16, an empty one without, None where that cannot be known."""
    try:
        flags = set(_FLAGS.read_text(encoding="utf-8").split())
    except OSError:
        return None
    return next((flag for flag in ("amx_bf16", "avx512_bf16") if flag in flags), "")
