"""The last resort: what the system refuses is told in a sentence, and a traceback is kept where it
can be found.
"""

import argparse
import errno
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader, Dataset

from st_jtcse.cli import exit_status
from st_jtcse.errors import naming

needs_full_device = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs Linux's full device"
)


def status_and_words(work, capsys):
    status = exit_status.command(
        argparse.ArgumentParser, lambda options: work(), "nothing was kept"
    )([])
    return status, capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("none/there", "none/there: there is no such file or folder; check the path."),
        (
            "file/below",
            "file/below: a part of this path is a file; move it, or choose another place.",
        ),
        ("folder", "folder: it is a folder; name a file."),
        ("n" * 300, f"{'n' * 300}: the name is too long; choose a shorter one."),
        ("loop", "loop: its links lead in a circle; choose another place."),
    ],
)
def test_what_the_system_refuses_is_told_with_its_path(path, told, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("folder").mkdir()
    Path("loop").symlink_to("loop")
    assert status_and_words(Path(path).read_text, capsys) == (2, f"{told}\n")


def test_a_refusal_that_no_path_explains_stays_a_defect(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def connect():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    status, told = status_and_words(connect, capsys)
    assert status == 1 and told.startswith("ConnectionRefusedError at ")


@contextmanager
def files_limited_to(size):
    """Where the next byte of a file is one too many, as on a full disk."""
    earlier = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, earlier[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, earlier)


def wrapped(path):
    try:
        path.write_bytes(bytes(2_000_000))
    except OSError as error:
        raise RuntimeError("the library's own words") from error


def small(path):
    with files_limited_to(1_000):  # So little is not written before the file is closed.
        torch.save(torch.zeros(10), path)


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (
            lambda path: path.write_bytes(bytes(2_000_000)),
            "a file may not grow so large here; raise that limit",
        ),
        (wrapped, "a file may not grow so large here; raise that limit"),
        (
            lambda path: save_file({"weight": torch.zeros(500_000)}, path),
            "a file may not grow so large here; raise that limit",
        ),
        (
            lambda path: torch.save(torch.zeros(500_000), path),
            "the disk could not be read or written; see whether it is full or failing",
        ),
        (small, "the disk could not be read or written; see whether it is full or failing"),
    ],
    ids=["Python", "wrapped", "safetensors", "torch", "torch, little"],
)
def test_what_the_disk_does_not_take_is_told_with_the_folder_that_was_written(
    write, told, capsys, tmp_path
):
    def work():
        with naming("runs/mine"), files_limited_to(1_000_000):
            write(tmp_path / "weights")

    assert status_and_words(work, capsys) == (2, f"runs/mine: {told}.\n")


@pytest.mark.parametrize(
    ("take", "wanted"),
    [
        (lambda: torch.empty(2**58), " (1152921504606846976 bytes more were wanted)"),
        (lambda: np.empty(2**55), " (256. PiB more were wanted)"),
        (lambda: bytearray(2**62), ""),
    ],
    ids=["torch", "numpy", "Python"],
)
def test_memory_that_runs_out_is_told(take, wanted, capsys):
    status, told = status_and_words(take, capsys)
    assert status == 2 and told.startswith(f"memory ran out{wanted}; take less at a time"), told


def test_the_nearest_path_is_the_one_that_is_told(capsys):
    def work():
        with naming("outside"), naming("inside"):
            raise OSError(errno.ENOSPC, "full")

    assert status_and_words(work, capsys)[1].startswith("inside: no space is left")


def test_where_no_file_can_be_kept_the_traceback_is_printed(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))

    def work():
        raise ValueError("a defect")

    status, told = status_and_words(work, capsys)
    assert status == 1 and told.startswith("Traceback (most recent call last):\n")
    assert told.splitlines()[-1].endswith("please report it with the lines above.")


class _Dying(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_told_in_one_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    status, told = status_and_words(lambda: list(DataLoader(_Dying(), num_workers=1)), capsys)
    assert status == 1 and told.count("\n") == 1
    assert "RuntimeError at " in told and "(DataLoader worker (pid" in told


def run(code, *arguments, **streams):
    # Buffered as on a shell: what is printed fails only when it is flushed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        **streams,
    )


COMMAND = "import sys; from st_jtcse.cli.train import main; sys.exit(main())"


@needs_full_device
@pytest.mark.parametrize("answer", ["--list", "--help"])
def test_a_full_stdout_is_told(answer):
    with open("/dev/full", "w") as full:
        done = run(COMMAND, answer, stdout=full)
    assert (done.returncode, done.stderr) == (
        2,
        "stdout: no space is left on the disk; free some.\n",
    )


def test_a_closed_stdout_is_told_before_anything_is_begun(tmp_path):
    copy = "--copy", "quickstart", str(tmp_path / "r.yaml")
    done = run(COMMAND, *copy, preexec_fn=lambda: os.close(1))
    told = "stdout is closed; lead it to a file, or to /dev/null.\n"
    assert (done.returncode, done.stderr) == (2, told)
    assert not list(tmp_path.iterdir())


def test_a_stdout_that_nobody_reads_ends_the_command_without_a_word():
    reader, writer = os.pipe()
    os.close(reader)
    done = run(COMMAND, "--list", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("module", "told"),
    [("rich.console", "nothing was begun"), ("accelerate", "nothing was written")],
)
def test_an_interruption_while_libraries_are_imported_is_told_in_one_line(module, told):
    code = f"""
import os, signal, sys
class Interrupting:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting)
{COMMAND}
"""
    done = run(code, "quickstart", "--dry-run", stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"Interrupted; {told}.\n")


def pass_over():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # As libraries do that look whether they have another one.
        pass
    import imported_next  # noqa: F401


def make_another_error():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:  # As modules in C do.
        raise ImportError("numpy.core.multiarray failed to import") from None


@pytest.mark.parametrize("work", [pass_over, make_another_error])
def test_an_interruption_that_a_library_hides_is_told_all_the_same(
    work, capsys, tmp_path, monkeypatch
):
    (tmp_path / "imported_next.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.getsignal(signal.SIGINT), sys.meta_path[:]
    assert status_and_words(work, capsys) == (130, "Interrupted; nothing was kept.\n")
    assert (signal.getsignal(signal.SIGINT), sys.meta_path) == before


def test_a_command_in_a_thread_leaves_signals_alone(capsys):
    found = []
    thread = threading.Thread(target=lambda: found.append(status_and_words(lambda: 0, capsys)))
    thread.start()
    thread.join()
    assert found == [(0, "")]
