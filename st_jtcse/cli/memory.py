"""What a command does about its memory: glibc keeps what a training step frees, for on many
machines fresh pages cost a good part of a step; imported libraries are not searched for garbage.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Set to 0, it leaves glibc as it is.
SWITCH = "ST_JTCSE_KEEP_MEMORY"
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h
_OWN = ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def keep_memory() -> None:
    """Serve large blocks from the heap too, and never give the heap's end back; before torch is
    imported.

    Nothing is done without glibc, and where its user has set it up himself.
    """
    if (
        sys.platform != "linux"
        or platform.libc_ver()[0] != "glibc"
        or os.environ.get(SWITCH) == "0"
    ):
        return
    if any(name in os.environ for name in _OWN):
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


@contextmanager
def importing() -> Iterator[None]:
    """Import libraries that take seconds: what they leave stays until the command ends, and to
    search it for garbage, at every import and when the command ends, takes seconds more.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
