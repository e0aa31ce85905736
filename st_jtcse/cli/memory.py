"""Has glibc keep the memory that a training step frees: on many machines fresh pages cost a good
part of a step.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys

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
