"""The processes of a distributed run: which one writes, what they share, and how they wait."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    """Return this process's number; 0 outside a distributed run."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def count() -> int:
    """Return the number of processes; 1 outside a distributed run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def of_first(value: Tensor) -> Tensor:
    """Return a tensor as the first process has it."""
    if count() > 1:
        dist.broadcast(value, src=0)
    return value


def mean(value: Tensor) -> Tensor:
    """Return the mean of all processes' tensors."""
    if count() > 1:
        value = value / count()
        dist.all_reduce(value)
    return value


def wait_for_all() -> None:
    """Go on when every process has come here."""
    if count() > 1:
        dist.barrier()
