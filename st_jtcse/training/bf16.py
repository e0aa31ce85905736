"""What bf16 means on a machine without an accelerator."""

from __future__ import annotations

from pathlib import Path

import torch

_FLAGS = Path("/proc/cpuinfo")


def hint(message: str) -> str:
    """Return what to add to the trainer's refusal of arguments, where it is about bf16 on a CPU."""
    if "bf16" not in message or torch.accelerator.is_available():
        return ""
    told = gain()
    return f" On a CPU bf16 needs args.use_cpu: true{f'; {told}' if told else ''}."


def gain() -> str:
    """Say whether this processor computes in bf16 itself; nothing where that cannot be known or does not matter."""
    if torch.accelerator.is_available():
        return ""
    try:
        flags = set(_FLAGS.read_text(encoding="utf-8").split())
    except OSError:
        return ""
    if own := [flag for flag in ("amx_bf16", "avx512_bf16") if flag in flags]:
        return f"this processor supports bf16 ({own[0]}), which makes steps faster"
    return "this processor does not support bf16, so bf16 makes steps slower"
