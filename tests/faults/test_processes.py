"""Faults that one of a run's two processes meets: both end alike, and one says why."""

import pytest

from faults.conftest import ENCODER, write_project

SAVING = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
LOSS = {"type": "SimCSELoss", "gather_across_devices": True}
LOST = (
    "Another process of this run has ended, as one does that is killed; to go on from the last "
    "checkpoint, repeat the command with --resume."
)


@pytest.fixture
def project(tmp_path):
    stage = {**ENCODER, "loss": LOSS, "args": SAVING}
    return write_project(tmp_path / "project", [stage], evaluate={})


@pytest.fixture
def undisturbed(runs, project):
    ended = runs.of_two(project, "--output-dir", "undisturbed")
    assert ended.status == [0, 0], ended.said
    return project / "undisturbed"


def lines(ended):
    """What both processes said of their end."""
    return [line for said in ended.said for line in said.splitlines() if line and "\r" not in line]
