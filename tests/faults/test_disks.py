"""Disks that are full or read-only, and limits on files."""

import subprocess

import pytest

from faults.conftest import ENCODER, check_that_it_ends_alike, sampled, write_project


def told_in_a_sentence(project, ended, *words):
    assert ended.status == 2 and "Traceback" not in ended.said, (
        f"status {ended.status}: {ended.said}"
    )
    assert any(word in ended.said for word in words), ended.said


def no_space(project, ended):
    # Where torch writes, its message tells that writing failed, but not why.
    told_in_a_sentence(
        project, ended, "no space is left on the disk", "the disk could not be read or written"
    )


def test_a_disk_that_is_full_from_some_moment_on_is_told_and_the_run_resumes(
    undisturbed, disturb, every
):
    makes = [
        n
        for n, moment in enumerate(undisturbed.moments, 1)
        if moment["event"] in {"open", "os.mkdir"}
    ]
    moments = every(makes[::4], 1500, 5)
    disturb([{"fault": "full", "at": at} for at in moments], 2, no_space)


@pytest.fixture
def disk(tmp_path):
    """Mount an empty disk of so many KB, or change its size."""
    place = tmp_path / "disk"

    def sized(kilobytes):
        again = "remount," if place.exists() else ""
        place.mkdir(exist_ok=True)
        options = ["-t", "tmpfs", "-o", f"{again}size={kilobytes}k", "none"]
        if subprocess.run(["mount", *options, str(place)], capture_output=True).returncode:
            pytest.skip("no disk can be mounted here")
        return place

    yield sized
    # Lazily: a model that this process has mapped may still lie there.
    subprocess.run(["umount", "-l", str(place)], check=True)


# By the option alone: if the tests were killed here, the disk would stay mounted.
@pytest.mark.all_faults
@pytest.mark.parametrize("kilobytes", [4, 16, 64, 128, 192, 256, 320, 384, 448, 512])
def test_a_small_disk_is_told_and_a_larger_one_resumes(runs, project, undisturbed, disk, kilobytes):
    (project / "run").symlink_to(disk(kilobytes))
    no_space(project, runs(project))
    disk(65536)
    check_that_it_ends_alike(runs, project, undisturbed)


def test_a_limit_on_files_is_told_and_the_run_resumes(disturb, every):
    sizes = every([512, 1000, 2000, 4000, 8000, 12000], 6, 3)

    def too_large(project, ended):
        told_in_a_sentence(
            project, ended, "a file may not grow so large", "the disk could not be read or written"
        )

    disturb([{"largest_file": size} for size in sizes], 2, too_large)


def test_a_table_that_nobody_can_read_loses_no_model(runs, project, undisturbed):
    ended = runs(project, stdout="/dev/full")
    told_in_a_sentence(project, ended, "no space is left on the disk")
    check_that_it_ends_alike(runs, project, undisturbed)


@pytest.mark.parametrize(
    "path", sampled(["", "run/encoder/checkpoint-2", "run/joint", "cache"], "run/joint")
)
def test_a_folder_without_permission_is_told_and_the_run_resumes(runs, undisturbed, path):
    project = undisturbed.back_to(undisturbed.first(path))
    folders = [project, *(path for path in project.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    ended = runs(project, "--resume", obey_modes=True)
    for folder in folders:
        folder.chmod(0o755)
    told_in_a_sentence(project, ended, "you have no permission", "the disk is read-only")
    check_that_it_ends_alike(runs, project, undisturbed)


def test_a_read_only_disk_is_told_and_the_run_resumes(runs, undisturbed):
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    project = undisturbed.back_to(undisturbed.first("run/joint/checkpoint"))
    told_in_a_sentence(
        project, runs(project, "--resume", read_only=str(project)), "the disk is read-only"
    )
    check_that_it_ends_alike(runs, project, undisturbed)


def test_a_disk_too_small_for_the_teachers_vectors_is_told_before_the_first(runs, tmp_path):
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    taught = {
        **ENCODER,
        "teachers": [{"model": "./b", "pooling": "mean"}],
        "loss": {"type": "MSELoss"},
    }
    project = write_project(tmp_path / "project", [taught], evaluate={})
    cache = project / "cache"
    cache.mkdir()
    # 3,000 vectors of 8 halves, in shards and joined: 96,000 bytes.
    (project / "text.txt").write_text("\n".join(f"dog {n} sleeps" for n in range(3000)))
    ended = runs(project, small_disk=[str(cache), 64])
    told_in_a_sentence(
        project, ended, "need 0.10 MB while they are made, found 0.07 MB free; free some, or choose"
    )
    assert not [moment for moment in ended.moments if moment["path"].startswith("cache/")]
    ended = runs(project, "--resume", small_disk=[str(cache), 160])
    assert ended.status == 0, ended.said
    assert [moment for moment in ended.moments if moment["path"].startswith("cache/")]
