"""A folder is touched only by the run it belongs to, and by one process at a time."""

import errno
import json
import os
import shutil
import time
from pathlib import Path
from threading import Event, Thread

import pytest
from processes import start
from test_run import project, refusal, train, weights  # noqa: F401  # project is a fixture

from st_jtcse.errors import UserError
from st_jtcse.ownership import LIST
from st_jtcse.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("unrehearsed")


def test_somebody_elses_hidden_folders_are_left_alone(project, capsys):  # noqa: F811
    for name in (".encoder.old", ".encoder.new"):
        (project / "run" / name).mkdir(parents=True)
        (project / "run" / name / "training_results.json").write_text("{}")
    for options in ([], ["--resume"]):
        assert "run is not empty; choose another folder." in refusal(project, capsys, *options)


def test_another_recipes_run_is_left_alone(project, capsys):  # noqa: F811
    assert train(project, "--stage", "encoder") == 0
    shutil.move(project / "run" / "encoder", project / "run" / ".encoder.new")
    (project / "run" / ".encoder.old").mkdir()
    capsys.readouterr()
    assert "holds the run of another recipe" in refusal(
        project, capsys, "--resume", "--set", "seed=1"
    )


def hold(folder):
    with RunFolder(folder).in_use():
        time.sleep(300)


def test_a_second_run_is_told_whose_the_folder_is(project, capsys):  # noqa: F811
    assert train(project, "--stage", "encoder") == 0
    capsys.readouterr()
    holder = start(hold, project / "run")
    lock = project / "run" / ".in-use"
    while not lock.exists() or not lock.read_text():
        assert holder.is_alive()
        time.sleep(0.01)
    assert f"run is in use by process {holder.pid} on " in refusal(project, capsys, "--resume")
    # The lock dies with its process, however that ends, and what it leaves is in nobody's way.
    holder.kill()
    holder.join()
    assert lock.exists()
    assert train(project, "--stage", "encoder", "--resume") == 0
    assert not lock.exists()


def test_a_run_killed_before_its_recipe_was_whole_can_start_again(project, monkeypatch):  # noqa: F811
    replace = Path.replace

    def fail(path, *rest, **more):
        raise OSError(errno.EIO, "and nothing is cleared, as after a kill", str(path))

    def replace_others(path, goal):
        return fail(path) if "recipe" in path.name else replace(path, goal)

    for _ in range(2):
        with monkeypatch.context() as patch:
            for name, instead in (("unlink", fail), ("rmdir", fail), ("replace", replace_others)):
                patch.setattr(Path, name, instead)
            assert train(project, "--stage", "encoder") == 2
    left = {path.name for path in (project / "run").iterdir()}
    assert left > {LIST, ".in-use", ".in-use.lock"} and len(left) > 3
    assert train(project, "--stage", "encoder") == 0
    assert {path.name for path in (project / "run").iterdir() if path.name[0] == "."} == {LIST}
    assert json.loads((project / "run" / "results.json").read_text())["stages"]


def test_the_lock_is_this_processs(tmp_path):
    with RunFolder(tmp_path).in_use():
        assert (tmp_path / ".in-use").read_text().startswith(f"process {os.getpid()} on ")
    assert not list(tmp_path.iterdir())


def test_an_owner_that_cannot_be_read_is_told_in_one_line(tmp_path):
    with RunFolder(tmp_path).in_use():
        (tmp_path / ".in-use").write_bytes(b"\xff\xfe\nprocess\n" + b"x" * 10_000)
        with pytest.raises(UserError) as caught, RunFolder(tmp_path).in_use():
            pass
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_a_lock_that_was_waited_for_is_a_lock(tmp_path):
    begun, taken, over = Event(), Event(), Event()

    def wait():
        begun.set()
        with RunFolder(tmp_path).in_use():
            taken.set()
            over.wait()

    with RunFolder(tmp_path).in_use():
        waiting = Thread(target=wait)
        waiting.start()
        begun.wait()
    # The one before removed its file at the end: that must not be the one which is held now.
    assert taken.wait(10)
    with pytest.raises(UserError, match="is in use by process"), RunFolder(tmp_path).in_use():
        pass
    over.set()
    waiting.join()
    assert not list(tmp_path.iterdir())
