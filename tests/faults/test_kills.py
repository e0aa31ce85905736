"""A process that is killed, stopped or interrupted at a moment of its run."""

import os
import signal
import subprocess
import sys
import time

import pytest

from faults.conftest import check_that_it_ends_alike, first, sampled, weights


def numbers(moments, *parts):
    """The numbers of the moments whose paths hold one of some parts."""
    return [n for n, moment in enumerate(moments, 1) if any(part in moment["path"] for part in parts)]


def test_a_forked_run_is_a_fresh_one(runs, project, undisturbed):
    command = [sys.executable, "-m", "st_jtcse.cli.train", "recipe.yaml"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert subprocess.run(command, cwd=project, env=environment, capture_output=True).returncode == 0
    assert weights(project) == weights(undisturbed[0])


def test_a_run_killed_at_a_moment_resumes_to_the_same_bytes(undisturbed, disturb, every):
    moments = undisturbed[1]
    # What a stage's finishing renames: its record, its card, its checkpoints, itself.
    finishing = [n for n in numbers(moments, "run/joint", "run/.joint") if moments[n - 1]["event"] == "os.rename"]
    moments = every(range(1, len(moments) + 1), 180, 23, finishing[-2:])
    disturb([{"fault": "SIGKILL", "at": at} for at in moments], -signal.SIGKILL)


def test_a_run_killed_while_it_writes_a_file_resumes_to_the_same_bytes(undisturbed, disturb, every):
    torn = [n for n, moment in enumerate(undisturbed[1], 1) if moment["torn"]]
    moments = every(torn, 90, 11)
    disturb([{"fault": "SIGKILL", "at": at, "torn": True} for at in moments], -signal.SIGKILL)


def test_a_terminated_run_resumes_to_the_same_bytes(undisturbed, disturb, every):
    moments = every(range(6, len(undisturbed[1]) + 1, 20), 100, 7)
    disturb([{"fault": "SIGTERM", "at": at} for at in moments], -signal.SIGTERM)


def test_an_interrupted_run_says_so_and_resumes_to_the_same_bytes(undisturbed, disturb, every):
    def said_so(project, ended):
        assert "Interrupted" in ended.said and "--resume" in ended.said and "Traceback" not in ended.said, ended.said

    moments = every(range(2, len(undisturbed[1]) + 1, 9), 60, 9)
    disturb([{"fault": "SIGINT", "at": at} for at in moments], 130, said_so)


@pytest.mark.parametrize("seconds", sampled([0.3, 1, 2, 3, 4, 5, 6, 7], 2))
def test_an_interrupt_in_the_first_seconds_is_told_too(project, seconds):
    command = [sys.executable, "-m", "st_jtcse.cli.train", "recipe.yaml"]
    process = subprocess.Popen(command, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    # While torch is imported, its own code in C++ may abort.
    assert process.returncode in {130, -signal.SIGINT, -signal.SIGABRT} and "Traceback" not in said, said


def test_a_resume_that_is_killed_too_resumes_to_the_same_bytes(runs, undisturbed, disturb, every):
    def killed_again(project, ended):
        assert runs(project, "--resume", fault="SIGKILL", at=20).status == -signal.SIGKILL

    moments = every(range(25, 200, 10), 100, 5)
    disturb([{"fault": "SIGKILL", "at": at} for at in moments], -signal.SIGKILL, killed_again)


def test_a_second_run_on_the_folder_is_refused_and_the_first_goes_on(runs, project, undisturbed):
    ended = runs(project, fault="second", at=first(undisturbed[1], "run/joint/checkpoint-2"))
    assert ended.status == 0 and "second run: exit status 2" in ended.said, ended.said
    assert "is in use by process" in ended.said
    assert weights(project) == weights(undisturbed[0])
    check_that_it_ends_alike(runs, project, undisturbed)
