"""What a process of a distributed run is told by its environment, and by itself."""

import pytest
import torch

from st_jtcse import processes
from st_jtcse.cli import train
from st_jtcse.errors import UserError

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT")
GROUP = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}


@pytest.fixture
def environment(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)

    def set_to(values):
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return set_to


@pytest.mark.parametrize(
    ("given", "told"),
    [
        *(({name: "x"}, f"{name}: expected a whole number, found 'x'") for name in NAMES),
        ({"LOCAL_RANK": ""}, "LOCAL_RANK: expected a whole number, found ''"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE: expected at least 1, found 0"),
        ({**GROUP, "RANK": "2"}, "RANK: expected 0 to 1, below WORLD_SIZE, found 2"),
        ({**GROUP, "RANK": "-1"}, "RANK: expected 0 to 1, below WORLD_SIZE, found -1"),
        ({**GROUP, "MASTER_PORT": "70000"}, "MASTER_PORT: expected a port from 1 to 65535"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2, and RANK is not set"),
    ],
)
def test_an_environment_that_does_not_say_which_process_this_is(given, told, environment):
    environment(given)
    with pytest.raises(UserError, match=r"^Environment variable ") as refused:
        processes.check_environment()
    assert told in str(refused.value) and "torchrun" in str(refused.value)


@pytest.mark.parametrize("given", [{}, GROUP, {"LOCAL_RANK": "-1"}, {"LOCAL_RANK": "0"}])
def test_an_environment_of_a_launcher_or_none_is_taken(given, environment):
    environment(given)
    processes.check_environment()


def test_the_command_refuses_such_an_environment_in_one_line(environment, capsys):
    environment({"LOCAL_RANK": "x"})
    assert train.main(["quickstart", "--dry-run"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("Environment variable LOCAL_RANK: ") and told.count("\n") == 1


def test_a_process_alone_waits_for_nobody_and_ends_as_it_does():
    processes.wait_for_all()
    assert processes.in_any(True) and not processes.in_any(False)
    assert processes.of_first(torch.tensor(3)) == 3
    with pytest.raises(ZeroDivisionError), processes.together(lambda error: (1, str(error))):
        _ = 1 / 0
