"""Two machines: network namespaces joined by a wire, each with a name, a home and a temporary
folder of its own, and one project that both see.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from faults.conftest import ENCODER, weights, write_project

ADDRESSES = {"node0": "10.77.0.1", "node1": "10.77.0.2"}
LOSS = {"type": "SimCSELoss", "gather_across_devices": True}
STAGES = [
    {
        **ENCODER,
        "loss": LOSS,
        "args": {"max_steps": 300, "save_strategy": "steps", "save_steps": 20},
    },
    {
        "name": "student",
        "model": {"base": "./b", "pooling": "cls"},
        "teachers": [{"model": "stage:encoder"}],
        "loss": {"type": "MSELoss"},
        "args": {"max_steps": 2},
    },
]
LOST = "or cannot be reached; to go on from the last checkpoint, repeat the command with --resume."
PATIENCE = 240


def refused():
    """Why this machine can have no namespaces; empty where it can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare"))):
        return "only root makes network namespaces, by ip and unshare"
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True)
    return tried.stderr.decode()


pytestmark = [
    pytest.mark.all_faults,
    pytest.mark.skipif(bool(refused()), reason=refused() or "namespaces"),
]


class Nodes:
    """Two namespaces, and what runs in them."""

    def __init__(self, folder):
        self._folder, self._spaces = folder, [f"st{os.getpid()}n{rank}" for rank in range(2)]
        self._hosts = folder / "hosts"
        lines = [f"{address} {name}\n" for name, address in ADDRESSES.items()]
        self._hosts.write_text("".join(["127.0.0.1 localhost\n", *lines]))
        for space in self._spaces:
            ip("netns", "add", space)
        first, second = self._spaces
        ip("link", "add", "wire", "netns", first, "type", "veth", "peer", "wire", "netns", second)
        for space, address in zip(self._spaces, ADDRESSES.values()):
            ip("-n", space, "addr", "add", f"{address}/24", "dev", "wire")
            ip("-n", space, "link", "set", "wire", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def wire(self, state):
        """Cut the wire, or join it again."""
        ip("-n", self._spaces[0], "link", "set", "wire", state)

    def start(self, project, *options, hidden=None):
        """Start a run of st-train in both; the second sees nothing of a hidden folder."""
        started = []
        for rank, space in enumerate(self._spaces):
            own = self._folder / f"node{rank}"
            (own / "tmp").mkdir(parents=True, exist_ok=True)
            script = f"hostname node{rank}; mount --bind {self._hosts} /etc/hosts; "
            if rank and hidden:
                script += f"mount -t tmpfs tmpfs {hidden}; "
            command = [
                *("--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d", "--rdzv_id=run"),
                "--rdzv_endpoint=node0:29400",
            ]
            words = ["exec", sys.executable, "-m", "torch.distributed.run", *command]
            script += " ".join([*words, "-m", "st_jtcse.cli.train", "recipe.yaml", *options])
            with (own / "said").open("w") as said:
                process = subprocess.Popen(
                    [
                        "ip",
                        "netns",
                        "exec",
                        space,
                        "unshare",
                        "--uts",
                        "--mount",
                        "sh",
                        "-c",
                        script,
                    ],
                    cwd=project,
                    env={**os.environ, "HOME": str(own), "TMPDIR": str(own / "tmp")},
                    stdout=said,
                    stderr=said,
                )
            started.append(process)
        return started

    def said(self, rank):
        return (self._folder / f"node{rank}" / "said").read_text()

    def kill(self, rank):
        """Kill all that runs in a namespace."""
        for number in ip("netns", "pids", self._spaces[rank]).split():
            os.kill(int(number), signal.SIGKILL)

    def close(self):
        for rank, space in enumerate(self._spaces):
            self.kill(rank)
            ip("netns", "del", space)


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def nodes(tmp_path):
    made = Nodes(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What two processes of one machine make of the project."""
    project = write_project(tmp_path_factory.mktemp("one") / "project", STAGES, evaluate={})
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    subprocess.run(
        [*command, "-m", "st_jtcse.cli.train", "recipe.yaml"],
        cwd=project,
        check=True,
        timeout=PATIENCE,
    )
    return weights(project)


@pytest.fixture
def project(tmp_path):
    return write_project(tmp_path / "project", STAGES, evaluate={})


def wait_for(path):
    until = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < until, f"{path} never came"
        time.sleep(0.05)


def ended(started, nodes):
    statuses = [process.wait(PATIENCE) for process in started]
    return statuses, [nodes.said(rank) for rank in range(2)]


def test_two_nodes_make_the_same_bytes_as_two_processes_of_one(nodes, project, undisturbed):
    statuses, said = ended(nodes.start(project), nodes)
    assert statuses == [0, 0], said
    assert weights(project) == undisturbed


def test_a_cache_that_one_node_does_not_see_is_told_before_anything_is_written(nodes, project):
    (project / "cache").mkdir()
    statuses, said = ended(nodes.start(project, hidden="cache"), nodes)
    assert statuses == [1, 1]  # torchrun's own, whatever ends its processes.
    told = "process 1 on node1 does not see there what process 0 on node0 writes; set 'cache_dir' to a folder that all"
    assert "".join(said).count(told) == 1
    assert not (project / "run").exists() and not list((project / "cache").iterdir())


def test_a_run_one_of_whose_nodes_is_lost_resumes_to_the_same_bytes(nodes, project, undisturbed):
    started = nodes.start(project)
    wait_for(project / "run/encoder/checkpoint-40")
    nodes.kill(1)
    statuses, said = ended(started, nodes)
    assert statuses == [1, -signal.SIGKILL], said
    assert said[0].count(LOST) == 1
    statuses, said = ended(nodes.start(project, "--resume"), nodes)
    assert statuses == [0, 0], said
    assert weights(project) == undisturbed


def test_a_wire_that_is_cut_for_a_while_changes_nothing(nodes, project, undisturbed):
    started = nodes.start(project)
    wait_for(project / "run/encoder/checkpoint-40")
    nodes.wire("down")
    time.sleep(5)
    nodes.wire("up")
    statuses, said = ended(started, nodes)
    assert statuses == [0, 0], said
    assert weights(project) == undisturbed


def test_a_wire_that_stays_cut_ends_both_with_a_line(nodes, project):
    limit = ["--set", "args.ddp_timeout=10", "--set", "stages.encoder.args.max_steps=3000"]
    started = nodes.start(project, *limit)
    wait_for(project / "run/encoder/checkpoint-40")
    nodes.wire("down")
    assert started[0].wait(PATIENCE) == 1
    until = time.monotonic() + PATIENCE
    # torchrun itself may look for the other machine for longer.
    while LOST not in nodes.said(1):
        assert time.monotonic() < until, nodes.said(1)
        time.sleep(0.2)
    assert [nodes.said(rank).count(LOST) for rank in range(2)] == [1, 1]
