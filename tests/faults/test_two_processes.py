"""Faults that one of a run's two processes meets: both end alike, and one of them says why."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from processes import start

from faults.conftest import ENCODER, Runs, sampled, weights, write_project

SAVING = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
LOSS = {"type": "SimCSELoss", "gather_across_devices": True}
STAGE = {**ENCODER, "loss": LOSS, "args": SAVING}
LOST = (
    "Another process of this run has ended, as one does that is killed, or cannot be reached; "
    "to go on from the last checkpoint, repeat the command with --resume."
)
INTERRUPTED = "to go on from the last checkpoint, repeat the command with --resume."
CHECKPOINT, SAVED = "run/encoder/checkpoint-2", "run/.encoder.new"


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path / "project", [STAGE], evaluate={})


def said_once(ended, told):
    """Whether one of the processes says it, once, and neither shows a traceback."""
    said = "\n".join(ended.said)
    return said.count(told) == 1 and not any(
        word in said for word in ("Traceback", "RuntimeError", "frame #")
    )


def to(rank, fault):
    """A fault for one of the processes."""
    return [fault if rank == number else {} for number in range(2)]


def test_a_folder_that_holds_something_is_refused_once(runs, project):
    (project / "run").mkdir()
    (project / "run" / "mine").touch()
    ended = runs.of_two(project)
    assert ended.status == [2, 2]
    assert said_once(ended, "run is not empty; choose another folder.")
    assert [path.name for path in (project / "run").iterdir()] == ["mine"]


def test_a_fault_of_the_recipe_is_told_once(runs, project):
    ended = runs.of_two(project, "--set", "stages.encoder.nope=1")
    assert ended.status == [2, 2] and said_once(ended, "expected a known key, found 'nope'")


def test_other_recipes_are_told_once_with_what_differs(runs, project):
    each = to(1, {"arguments": ["recipe.yaml", "--set", "seed=8"]})
    ended = runs.of_two(project, each=each)
    assert ended.status == [2, 2], ended.said
    assert said_once(ended, "have different recipes (line 3: 'seed: 7' and 'seed: 8'); give all")
    assert not (project / "run").exists()


@pytest.mark.parametrize("path", [CHECKPOINT, SAVED])
def test_a_disk_that_is_full_for_the_writing_process_is_told_once(runs, project, path):
    ended = runs.of_two(project, each=to(0, {"fault": "full", "on": path}))
    assert ended.status == [2, 2], ended.said
    assert said_once(ended, "no space is left on the disk; free some.")


@pytest.mark.parametrize("rank", sampled([0, 1], 1))
def test_a_file_that_one_process_lacks_is_told_once(runs, project, rank):
    arguments = ["recipe.yaml", "--set", "data.train=none.txt"]
    ended = runs.of_two(project, each=to(rank, {"arguments": arguments}))
    assert ended.status == [2, 2], ended.said
    assert said_once(ended, "none.txt does not exist; check the path.")
    assert not (project / "run").exists()


@pytest.mark.parametrize(
    ("rank", "name", "path"),
    [
        (1, "SIGTERM", CHECKPOINT),
        *(
            pytest.param(rank, name, path, marks=pytest.mark.all_faults)
            for rank, name, path in [
                (1, "SIGKILL", CHECKPOINT),
                (0, "SIGTERM", CHECKPOINT),
                (0, "SIGKILL", "run/.recipe.yaml"),
                (0, "SIGKILL", SAVED),
            ]
        ),
    ],
)
def test_a_process_whose_other_is_killed_says_how_to_go_on(runs, project, rank, name, path):
    ended = runs.of_two(project, each=to(rank, {"fault": name, "on": path}))
    assert ended.status[rank] == -signal.Signals[name] and ended.status[1 - rank] == 2, ended.said
    assert said_once(ended, LOST), ended.said


@pytest.mark.parametrize("ranks", sampled([(0,), (1,), (0, 1)], (0, 1)))
def test_an_interruption_of_any_process_stops_both_at_a_checkpoint(runs, project, ranks):
    fault = {"fault": "SIGINT", "on": CHECKPOINT}
    ended = runs.of_two(project, each=[fault if rank in ranks else {} for rank in range(2)])
    assert ended.status == [130, 130], ended.said
    # The signal came while step 2 was saved, so that step 3 was the last.
    assert said_once(ended, f"Interrupted in stage 'encoder' at step 3; {INTERRUPTED}"), ended.said
    assert (project / "run/encoder/checkpoint-3/checkpoint_manifest.json").exists()


@pytest.mark.all_faults
def test_an_interrupted_run_of_two_processes_resumes_to_the_same_bytes(runs, project):
    ended = runs.of_two(project, each=to(1, {"fault": "SIGINT", "on": CHECKPOINT}))
    assert ended.status == [130, 130], ended.said
    resumed = runs.of_two(project, "--resume")
    assert resumed.status == [0, 0], resumed.said
    assert "on from step 3" in resumed.said[0]
    straight = runs.of_two(project, "--output-dir", "straight")
    assert straight.status == [0, 0] and weights(project) == weights(project, "straight") != {}


@pytest.mark.all_faults
@pytest.mark.skipif(sys.platform != "linux", reason="the workers are found in /proc")
def test_torchrun_restarts_a_run_one_of_whose_processes_is_killed(runs, project, tmp_path):
    steps = ["--set", "stages.encoder.args.max_steps=120"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command = ["--max-restarts=2", "-m", "st_jtcse.cli.train", "recipe.yaml", "--resume", *steps]
    environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    with (tmp_path / "said.txt").open("w") as said:
        torchrun = subprocess.Popen(
            [sys.executable, *launcher, *command],
            cwd=project,
            env=environment,
            stdout=said,
            stderr=said,
        )
        try:
            until = time.monotonic() + 120
            while not (project / "run/encoder/checkpoint-20").exists():
                assert torchrun.poll() is None and time.monotonic() < until
                time.sleep(0.02)
            workers = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()
            os.kill(int(workers[-1]), signal.SIGKILL)
            status = torchrun.wait(180)
        finally:
            torchrun.terminate()
            torchrun.wait(30)
    told = (tmp_path / "said.txt").read_text()
    assert status == 0 and told.count(LOST) == 1 and "on from step" in told, told
    straight = runs.of_two(project, *steps, "--output-dir", "straight")
    assert straight.status == [0, 0], straight.said
    assert weights(project) == weights(project, "straight") != {}


@pytest.mark.parametrize("rank", sampled([0, 1], 0))
@pytest.mark.parametrize("keeps_store", sampled([False, True], True))
def test_a_defect_in_the_midst_of_a_step_is_told_once(runs, project, rank, keeps_store):
    """While the other process waits for its gradients, deaf to all but the end of this one."""
    defect = {"raises": "st_jtcse.losses.simcse:SimCSELoss.forward"}
    group = own_store() if keeps_store else {}
    ended = runs.of_two(project, each=to(rank, defect), **group)
    assert ended.status == [1, 1], ended.said
    assert said_once(ended, "ZeroDivisionError at "), ended.said


def own_store():
    """A group whose first process keeps the store, as without torchrun."""
    # Below the ports that a system gives to whoever asks for one.
    port = 20_000 + os.getpid() % 10_000
    group = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    return {"group": group | {"MASTER_PORT": str(port)}}


@pytest.mark.all_faults
def test_a_port_that_is_taken_is_told(project, tmp_path):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        group = own_store()["group"] | {"MASTER_PORT": str(taken.getsockname()[1])}
        first = start(train, project, said=tmp_path / "said.txt", RANK="0", LOCAL_RANK="0", **group)
        first.join(300)
    said = (tmp_path / "said.txt").read_text()
    assert first.exitcode == 2 and said.startswith("The processes of this run do not find each")
    assert "MASTER_PORT" in said and said.count("\n") == 1, said


def train(project):
    from st_jtcse.cli.train import main

    os.chdir(project)
    return main(["recipe.yaml"])


@pytest.mark.all_faults
def test_two_hundred_undisturbed_runs_end_well(tmp_path):
    """Four at a time, so that eight processes are busy."""

    def fifty(number):
        folder = tmp_path / str(number)
        folder.mkdir()
        project, runs = write_project(folder / "project", [STAGE], evaluate={}), Runs(folder)
        failures = []
        for _ in range(50):
            ended = runs.of_two(project)
            if ended.status != [0, 0]:
                failures.append(ended)
            shutil.rmtree(project / "run", ignore_errors=True)
        runs.close()
        return failures

    with ThreadPoolExecutor() as pool:
        failures = [ended for found in pool.map(fifty, range(4)) for ended in found]
    assert not failures
