"""How fast this machine works, and what memory this process has taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from st_jtcse.training.job import Job

# Texts that are embedded to time it; the first few before that, untimed.
_TEXTS, _FIRST = 256, 16


def seconds_by(*, on_cpu: bool) -> float:
    """Return seconds; on a CPU those that this thread computed, for other programs may take most of
    the clock's.
    """
    return time.thread_time() if on_cpu else time.perf_counter()


def rate_of(compute: Callable[[], Any], count: float, *, on_cpu: bool = True) -> float:
    """Return how much is computed a second, by a call that computes so much."""
    began = seconds_by(on_cpu=on_cpu)
    compute()
    return count / max(seconds_by(on_cpu=on_cpu) - began, 1e-9)


def texts_a_second(job: Job, encode: Callable[[list[Any]], Any]) -> float | None:
    """Return how many of a stage's texts are encoded a second; None where none are read."""
    rows = job.inputs.sentences
    if rows is None:
        return None
    dataset = rows.dataset
    column = next(name for name in dataset.column_names if name != "label")
    texts = evenly(dataset, _TEXTS)[column]
    encode(texts[:_FIRST])
    on_cpu = not torch.accelerator.is_available()
    return rate_of(lambda: encode(texts), len(texts), on_cpu=on_cpu)


def evenly(dataset: Any, count: int) -> dict[str, list[Any]]:
    """Return so many rows of a data set, all where it has no more, from its first to its last."""
    step = -(-len(dataset) // count)
    found: dict[str, list[Any]] = dataset[range(0, len(dataset), step)]
    return found


def memory() -> tuple[int, int]:
    """Return the bytes of memory that this process takes, and the most that it has taken; nothing
    where the system does not say it.
    """
    with suppress(OSError, IndexError):
        told = Path("/proc/self/status").read_text(encoding="utf-8")
        now, most = (told.partition(name)[2].split()[0] for name in ("VmRSS:", "VmHWM:"))
        return 1024 * int(now), 1024 * int(most)
    return 0, 0
