"""A process that has imported everything and forks a run for each order on stdin; the run dies
where it is told to.

A moment is the instant before a run's n-th operation under its folder that makes, moves or removes
a file, as Python's audit events tell of it. What libraries write natively raises no event, but
shows at the next: a torn moment is one at which the file written last, but for run.log, is half
written. One run tells of all its moments what lay on the disk then, which is what a kill at that
moment would leave.
"""

import contextlib
import ctypes
import errno
import functools
import gc
import hashlib
import importlib
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import traceback
from pathlib import Path

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
OPERATIONS = {
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
}
TAKE_SPACE = {"open", "os.mkdir", "os.link", "os.symlink"}
DAC_OVERRIDE, NEW_MOUNTS = 1 << 1, 0x20000


class Moments:
    """Counts what a run does under a folder, and has it meet its fault at the moment ordered."""

    def __init__(self, root, order, diary):
        self.root, self.order, self.diary = str(root), order, diary
        self.count, self.busy, self.seen = 0, False, self._files()

    def __call__(self, event, arguments):
        if self.busy or not (event in OPERATIONS or event == "open"):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITES):
            return
        self.busy = True
        try:
            path = self._path(
                arguments[0],
                arguments[-1] if event in {"os.remove", "os.rmdir", "os.mkdir"} else -1,
            )
            if path.startswith(f"{self.root}/"):
                self._meet(event, path)
        finally:
            self.busy = False

    def _path(self, path, folder):
        if not isinstance(path, str | bytes | os.PathLike):
            return ""
        path = os.fsdecode(path)
        return (
            os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
            if folder != -1
            else os.path.abspath(path)
        )

    def _files(self):
        files = {}
        for folder, _, names in os.walk(self.root):
            for name in names:
                if (
                    name == "run.log"
                ):  # Written all the time, and read by no run: a torn one is no fault to meet.
                    continue
                # The run's other process may have moved it meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    state = os.lstat(path := os.path.join(folder, name))
                    files[state.st_ino] = state.st_mtime_ns, state.st_size, path
        return files

    def _tree(self):
        """What lies under the folder: its folders, and its files by their hashes, under which they
        are kept.
        """
        tree = {}
        for folder, folders, names in os.walk(self.root):
            place = Path(folder).relative_to(self.root)
            tree |= {str(place / name): None for name in folders}
            for name in names:
                content = Path(folder, name).read_bytes()
                tree[str(place / name)] = digest = hashlib.sha256(content).hexdigest()
                if not Path(self.order["keep"], digest).exists():
                    Path(self.order["keep"], digest).write_bytes(content)
        return tree

    def _meet(self, event, path):
        self.count += 1
        files = self._files()
        written = [
            state
            for inode, state in files.items()
            if state[:2] != self.seen.get(inode, ())[:2] and state[1]
        ]
        torn = max(written)[2] if written else None
        self.seen = files
        under = functools.partial(os.path.relpath, start=self.root)
        line = {"event": event, "path": under(path), "torn": torn and under(torn)}
        if "keep" in self.order:
            line["tree"] = self._tree()
        with contextlib.suppress(OSError):  # A limit on files is the diary's too.
            os.write(self.diary, (json.dumps(line) + "\n").encode())
        on = self.order.get("on")
        # The first time that something is done there; what is temporary has a random ending.
        if on is not None and f"{under(path)}.".startswith(f"{on}."):
            self.order = self.order | {"at": self.count, "on": None}
        fault, at = self.order.get("fault"), self.order.get("at")
        if fault is None or at is None or self.count < at:
            return
        if fault == "full":
            if event in TAKE_SPACE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return
        if self.count > at:
            return
        if fault == "second":
            second_run()
        elif fault == "worker":
            for worker in multiprocessing.active_children():
                os.kill(worker.pid, signal.SIGKILL)
                # The parent hears of it here, not at some later line, which may be one that logs
                # what it catches.
                os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        else:
            if self.order.get("torn"):
                tear(torn)
            os.kill(os.getpid(), signal.Signals[fault])


def tear(path):
    """Leave half of what was written into a file last."""
    content = Path(path).read_bytes()
    # What was appended to a list before is on the disk.
    whole = content.rfind(b"\n") + 1 if str(path).endswith(".st-jtcse.jsonl") else 0
    os.truncate(path, (whole + len(content)) // 2)


def second_run():
    """Have another process resume the run, and wait until it has been told."""
    from st_jtcse.cli.train import main

    process = os.fork()
    if process == 0:
        status = main(["recipe.yaml", "--resume"])
        os.write(2, f"second run: exit status {status}\n".encode())
        os._exit(0)
    os.waitpid(process, 0)


def obey_modes():
    """Give up the superuser's right to write where a folder's mode forbids it."""

    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

    libc = ctypes.CDLL(None, use_errno=True)
    header, data = Header(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(ctypes.byref(header), data) == 0
    data[0] &= ~DAC_OVERRIDE
    assert libc.capset(ctypes.byref(header), data) == 0


def mount(*mounts):
    """Mount for this process alone."""
    assert ctypes.CDLL(None, use_errno=True).unshare(NEW_MOUNTS) == 0
    for arguments in (["--make-rprivate", "/"], *mounts):
        subprocess.run(["mount", *arguments], check=True)


def raise_in(place):
    """Let a method, MODULE:CLASS.METHOD, be a defect."""
    module, _, name = place.partition(":")
    owner, _, method = name.partition(".")

    def raises(*_, **__):
        raise ZeroDivisionError("struck")

    setattr(getattr(importlib.import_module(module), owner), method, raises)


def limit_memory(more):
    """Let this process take so many bytes beside what it has."""
    most = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def run(order):
    """Be the run: its output goes to its log, its moments to its diary."""
    from st_jtcse.cli.train import main
    from st_jtcse.training import runner

    if not order["rehearse"]:
        runner.rehearse = lambda *_: None
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    diary = os.open(order["diary"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    output = os.open(order["stdout"], os.O_WRONLY) if "stdout" in order else log
    os.dup2(output, 1)
    os.dup2(log, 2)
    os.chdir(order["folder"])
    if "group" in order:
        rank = str(order["rank"])
        os.environ |= {**order["group"], "RANK": rank, "LOCAL_RANK": rank}
    if place := order.get("raises"):
        raise_in(place)
    if order.get("obey_modes"):
        obey_modes()
    if folder := order.get("read_only"):
        mount(["--bind", folder, folder], ["-o", "remount,bind,ro", folder])
    if "small_disk" in order:
        folder, kilobytes = order["small_disk"]
        mount(["-t", "tmpfs", "-o", f"size={kilobytes}k", "none", folder])
    if "more_memory" in order:
        limit_memory(order["more_memory"])
    if "largest_file" in order:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest_file"], order["largest_file"]))
    sys.addaudithook(Moments(order["root"], order, diary))
    status = main(order["arguments"])
    sys.stdout.flush()
    return status


def child(order):
    status = 1
    try:
        status = run(order)
    except SystemExit as exit:
        status = exit.code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status if isinstance(status, int) else 1)


def start(order):
    """Fork the processes of a run; `each` says of those of a group what the two do apart."""
    orders = [order]
    if "group" in order:
        orders = [
            order | own | {"rank": rank} | {key: f"{order[key]}-{rank}" for key in ("log", "diary")}
            for rank, own in enumerate(order["each"])
        ]
    for each in orders:
        process = os.fork()
        if process == 0:
            child(each)
        yield process


def serve():
    """Answer each order with the exit statuses of its processes, negative signals that ended them."""
    import jinja2
    import torch

    torch.set_num_threads(1)
    # Cards are written from templates; each run would compile them anew.
    jinja2.Environment.compile = functools.lru_cache(jinja2.Environment.compile)
    import st_jtcse.training.runner
    import st_jtcse.training.sweep  # noqa: F401

    gc.collect()
    gc.freeze()
    orders, answers = os.dup(0), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    answers.write("ready\n")
    answers.flush()
    for line in os.fdopen(orders):
        statuses = [
            os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            for process in [*start(json.loads(line))]
        ]
        answers.write(f"{json.dumps(statuses)}\n")
        answers.flush()


if __name__ == "__main__":
    serve()
