"""Disks that are full or read-only, and limits on files."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from faults.conftest import check_that_it_ends_alike, check_what_looks_finished, first, sampled


def told_in_a_sentence(project, ended, *words):
    assert ended.status == 2 and "Traceback" not in ended.said, f"status {ended.status}: {ended.said}"
    assert any(word in ended.said for word in words), ended.said


def no_space(project, ended):
    # Where torch writes, its message tells that writing failed, but not why.
    told_in_a_sentence(project, ended, "no space is left on the disk", "the disk could not be read or written")


def test_a_disk_that_is_full_from_some_moment_on_is_told_and_the_run_resumes(undisturbed, disturb, every):
    makes = [n for n, moment in enumerate(undisturbed[1], 1) if moment["event"] in {"open", "os.mkdir"}]
    moments = every(makes, 1000, 20)
    disturb([{"fault": "full", "at": at} for at in moments], 2, no_space)


def mounted(folder, size):
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", str(folder)], capture_output=True)
    return done.returncode == 0


def test_a_small_disk_is_told_and_the_run_resumes_on_a_larger_one(
    runs, untouched, undisturbed, tmp_path, every, record_property
):
    (tmp_path / "probe").mkdir()
    if not mounted(tmp_path / "probe", 64):
        pytest.skip("no file system can be mounted here")
    subprocess.run(["umount", "-l", str(tmp_path / "probe")], check=True)
    sizes = every([4, 16, 64, 128, 192, 256, 320, 384, 448, 512], 10, 3)
    for size in sizes:
        project = Path(shutil.copytree(untouched, tmp_path / f"disk{size}"))
        (project / "run").mkdir()
        assert mounted(project / "run", size)
        try:
            no_space(project, runs(project))
            subprocess.run(["mount", "-o", "remount,size=64m", str(project / "run")], check=True)
            check_that_it_ends_alike(runs, project, undisturbed)
        finally:
            subprocess.run(["umount", "-l", str(project / "run")], check=True)
    record_property("cases", len(sizes))


def test_a_limit_on_files_is_told_and_the_run_resumes(disturb, every):
    sizes = every([512, 1000, 2000, 4000, 8000, 12000], 6, 3)

    def too_large(project, ended):
        told_in_a_sentence(project, ended, "a file may not grow so large", "the disk could not be read or written")

    disturb([{"largest_file": size} for size in sizes], 2, too_large)


def test_a_table_that_nobody_can_read_loses_no_model(runs, project, undisturbed):
    ended = runs(project, stdout="/dev/full")
    told_in_a_sentence(project, ended, "no space is left on the disk")
    check_that_it_ends_alike(runs, project, undisturbed)


@pytest.mark.parametrize("path", sampled(["", "run/encoder/checkpoint-2", "run/joint", "cache"], "run/joint"))
def test_a_folder_without_permission_is_told_and_the_run_resumes(runs, project, undisturbed, path):
    if path:
        assert runs(project, fault="SIGKILL", at=first(undisturbed[1], path)).status == -signal.SIGKILL
    folders = [project, *(path for path in project.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    ended = runs(project, "--resume", obey_modes=True)
    for folder in folders:
        folder.chmod(0o755)
    told_in_a_sentence(project, ended, "you have no permission to", "the disk is read-only")
    check_that_it_ends_alike(runs, project, undisturbed)


def test_a_read_only_disk_is_told_and_the_run_resumes(runs, project, undisturbed):
    (project / "run").mkdir()
    if not mounted(project / "run", 4096):
        pytest.skip("no file system can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro", str(project / "run")], check=True)
        told_in_a_sentence(project, runs(project), "the disk is read-only")
        check_what_looks_finished(project)
        subprocess.run(["mount", "-o", "remount,rw", str(project / "run")], check=True)
        check_that_it_ends_alike(runs, project, undisturbed)
    finally:
        subprocess.run(["umount", "-l", str(project / "run")], check=True)
