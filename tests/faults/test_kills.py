"""A process that is killed, stopped or interrupted at a moment of its run."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from faults.conftest import (
    ENCODER,
    check_each,
    check_that_it_ends_alike,
    sampled,
    steady,
    told,
    tree_of,
    weights,
    write_project,
)


@pytest.mark.all_faults
def test_a_forked_run_is_a_fresh_one(project, undisturbed):
    command = [sys.executable, "-m", "st_jtcse.cli.train", "recipe.yaml"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert (
        subprocess.run(command, cwd=project, env=environment, capture_output=True).returncode == 0
    )
    assert weights(project) == weights(undisturbed.folder)


@pytest.mark.parametrize("name", sampled(["SIGKILL", "SIGTERM"], "SIGTERM"))
def test_a_process_killed_leaves_what_the_disk_held_at_its_moment(
    runs, undisturbed, disturb, every, name
):
    """By which the other tests lay out the disk, and kill nobody."""

    def as_it_was(project, ended):
        at = undisturbed.alike(ended.moments)
        assert steady(tree_of(project)) == steady(undisturbed.moments[at - 1]["tree"])

    moments = every(range(6, len(undisturbed.moments) + 1, 40), 100, 3)
    disturb([{"fault": name, "at": at} for at in moments], -signal.Signals[name], as_it_was)


def test_a_run_killed_at_a_moment_resumes_to_the_same_bytes(undisturbed, kill, every):
    moments = undisturbed.moments
    # What a stage's finishing renames: its record, its card, its checkpoints, itself.
    finishing = [
        n
        for n, moment in enumerate(moments, 1)
        if moment["event"] == "os.rename" and moment["path"].startswith(("run/joint", "run/.joint"))
    ]
    kill(every(range(1, len(moments) + 1), 300, 69, finishing[-2:]))


def test_a_run_killed_while_it_writes_a_file_resumes_to_the_same_bytes(undisturbed, kill, every):
    torn = [n for n, moment in enumerate(undisturbed.moments, 1) if moment["torn"]]
    kill(every(torn, 90, 11), torn=True)


def test_an_interrupted_run_says_so_and_resumes_to_the_same_bytes(undisturbed, disturb, every):
    def said_so(project, ended):
        assert (
            "Interrupted" in ended.said
            and "--resume" in ended.said
            and "Traceback" not in ended.said
        ), ended.said

    moments = every(range(2, len(undisturbed.moments) + 1, 18), 90, 9)
    disturb([{"fault": "SIGINT", "at": at} for at in moments], 130, said_so)


@pytest.mark.parametrize("seconds", sampled([0.3, 1, 2, 3, 4, 5, 6, 7], 2))
def test_an_interrupt_in_the_first_seconds_is_told_too(project, seconds):
    command = [sys.executable, "-m", "st_jtcse.cli.train", "recipe.yaml"]
    process = subprocess.Popen(
        command, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    # While torch is imported, its own code in C++ may abort.
    assert (
        process.returncode in {130, -signal.SIGINT, -signal.SIGABRT} and "Traceback" not in said
    ), said


def test_a_resume_that_is_killed_too_resumes_to_the_same_bytes(runs, kill, every):
    def killed_again(project):
        assert runs(project, "--resume", fault="SIGKILL", at=20).status == -signal.SIGKILL

    kill(every(range(25, 200, 10), 100, 5), then=killed_again)


def test_notes_in_every_folder_of_a_killed_run_survive(runs, undisturbed, every, record_property):
    # Before the recipe is there, a folder that holds more than the run's files is refused.
    begins = 1 + undisturbed.first("run/run.log")
    moments = every(range(begins, len(undisturbed.moments) + 1), 150, 3)
    states = {undisturbed.state(at): at for at in moments}

    def one(at):
        project = undisturbed.back_to(at)
        run = project / "run"
        notes = {str(path.relative_to(run)) for path in [run, *run.rglob("*")] if path.is_dir()}
        for folder in notes:
            (run / folder / "notes.txt").write_text(folder)
        ended = runs(project, "--resume")
        assert ended.status == 0, ended.said
        assert weights(project) == weights(undisturbed.folder)
        found = [path.read_text() for path in run.rglob("notes.txt*")]
        assert sorted(found) == sorted(notes), set(notes) - set(found)

    check_each(states.values(), one)
    record_property("cases", len(moments))


def test_a_second_run_on_the_folder_is_refused_and_the_first_goes_on(runs, project, undisturbed):
    ended = runs(project, fault="second", at=undisturbed.first("run/joint/checkpoint-2"))
    assert ended.status == 0 and "second run: exit status 2" in ended.said, ended.said
    assert "is in use by process" in ended.said
    assert weights(project) == weights(undisturbed.folder)
    check_that_it_ends_alike(runs, project, undisturbed)


def test_a_run_of_two_processes_one_of_which_is_killed_resumes_to_the_same_bytes(runs, tmp_path):
    # Of 24 sentences, 4 are left after two batches of 5 in either process.
    args = {"max_steps": -1, "num_train_epochs": 2, "save_strategy": "steps", "save_steps": 2}
    loss = {"type": "SimCSELoss", "gather_across_devices": True, "mini_batch_size": 4}
    project = write_project(
        tmp_path / "project", [{**ENCODER, "loss": loss, "args": args}], evaluate={}
    )
    batch = ["--set", "args.per_device_train_batch_size=5"]

    run = partial(runs.of_two, project, *batch)
    straight = run("--output-dir", "straight")
    assert straight.status == [0, 0], straight.said
    assert "encoder.steps: 4" in told(project, "straight")
    killed = run(each=[{"fault": "SIGKILL", "on": "run/encoder/checkpoint-4"}, {}])
    assert killed.status == [-signal.SIGKILL, 2], killed.said
    assert (project / "run/encoder/checkpoint-2").is_dir(), killed.said
    resumed = run("--resume")
    assert resumed.status == [0, 0], resumed.said
    assert weights(project) == weights(project, "straight") != {}
    assert told(project) == told(project, "straight")
