"""Processes of a test's own, each the fork of one that has imported the libraries, not this
package, and no more.

A test of what happens when a process starts, as it imports them and reads its environment, starts a
Python instead.
"""

import gc
import multiprocessing
import os
import sys
from pathlib import Path

from torch.distributed import TCPStore

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "pytest",
        "peft",
        "sentence_transformers.cross_encoder",
        "sentence_transformers.sparse_encoder",
    ]
)


def group_of_two():
    """Return the store of a group of two processes, and the environment by which they find it.

    The store is kept here, as torchrun keeps it: a port that is given back before a process takes
    it may be another's by then.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return store, {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def start(function, *given, said=os.devnull, **environment):
    """Start a process that ends with a function's result as exit status; what it says goes into a
    file.
    """
    process = _CONTEXT.Process(target=_run, args=(function, given, str(said), environment))
    process.start()
    return process


def run_two(function, *given, folder):
    """Run a function in two processes that find each other as those of torchrun do."""
    store, group = group_of_two()
    files = [Path(folder, f"said-by-{rank}.txt") for rank in range(2)]
    processes = [
        start(function, *given, said=said, RANK=str(rank), LOCAL_RANK=str(rank), **group)
        for rank, said in enumerate(files)
    ]
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0, 0], [
        file.read_text() for file in files
    ]
    del store


def run_code(code, *arguments, folder, **environment):
    """Run a script that has no part in this package until it imports it, and return what it says."""
    said = Path(folder, "said.txt")
    process = start(_execute, code, arguments, said=said, **environment)
    process.join(300)
    assert process.exitcode == 0, said.read_text()
    return said.read_text()


def _execute(code, arguments):
    from transformers import dynamic_module_utils

    assert "st_jtcse" not in sys.modules
    if "HF_MODULES_CACHE" in os.environ:  # Which is read when the library is imported.
        if dynamic_module_utils.HF_MODULES_CACHE in sys.path:
            sys.path.remove(dynamic_module_utils.HF_MODULES_CACHE)
        sys.modules.pop("transformers_modules", None)
        dynamic_module_utils.HF_MODULES_CACHE = os.environ["HF_MODULES_CACHE"]
    sys.argv[1:] = arguments
    exec(code, {"__name__": "__main__"})


def _run(function, given, said, environment):
    os.environ.update(environment)
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    gc.freeze()  # accelerate asks for whole collections.
    sys.exit(function(*given))
