"""glibc keeps what a step frees, unless its user says otherwise; what is imported is kept."""

import gc
import os
import platform
import subprocess
import sys

import pytest
import torch  # noqa: F401

from st_jtcse.cli.memory import SWITCH, importing

PROGRAM = """
import ctypes
from st_jtcse.cli.memory import keep_memory
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]
keep_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.mallinfo2.restype = ctypes.c_void_p, Info
before = libc.mallinfo2().hblkhd
libc.malloc(ctypes.c_size_t(1 << 26))
print(libc.mallinfo2().hblkhd - before >= 1 << 26)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
@pytest.mark.parametrize(
    ("environment", "mapped"),
    [({SWITCH: "1"}, False), ({SWITCH: "0"}, True), ({"MALLOC_MMAP_MAX_": "9"}, True)],
)
def test_large_blocks_come_from_the_heap(environment, mapped):
    own = {key: value for key, value in os.environ.items() if key != SWITCH} | environment
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=own, capture_output=True, text=True)
    assert done.stdout == f"{mapped}\n", done.stderr


IMPORTS = """
import gc
from contextlib import suppress
from st_jtcse.cli.memory import importing
with suppress(KeyError), importing():
    raise KeyError
failed = gc.isenabled(), gc.get_freeze_count()
with importing():
    inside = gc.isenabled()
    import decimal
print(*failed, inside, gc.isenabled(), gc.get_freeze_count() > 1000)
gc.disable()
with importing():
    pass
print(gc.isenabled())
"""


def test_what_is_imported_is_not_searched_for_garbage_and_what_comes_later_is():
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert done.stdout == "True 0 False True True\nFalse\n", done.stderr


def test_nothing_is_changed_where_the_libraries_are_imported_already():
    assert "torch" in sys.modules
    before = gc.get_freeze_count()
    with importing():
        assert gc.isenabled()
    assert gc.get_freeze_count() == before
