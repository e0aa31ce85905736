"""Folders of models of which one thing was changed at random: the model loads and reads a sentence,
or is refused in whole sentences; there is no traceback, no endless work, and no memory without
bound.
"""

import json
import resource
import signal
import sys
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from conftest import command_of, make_pairs, make_sentences, write_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from inputs.of_folders import (
    REMOVED,
    Change,
    changed_copy,
    changes,
    files_of,
    load,
    save_families,
)
from st_jtcse.errors import UserError
from st_jtcse.hub.model_form import model_form
from st_jtcse.modules.saved_form import saved_form

# Those of which a few changes are tried in every run of the tests.
USUAL = ("st", "plain", "twin")
# No example comes near it; what does without it never ends.
SECONDS, BYTES = 120, 6 * 2**30

same_each_time = settings(max_examples=24, derandomize=True, deadline=None, database=None)
many = settings(same_each_time, max_examples=3000)
some_commands = settings(same_each_time, max_examples=4)
many_commands = settings(same_each_time, max_examples=200)


@pytest.fixture(scope="module")
def families(tmp_path_factory):
    return save_families(tmp_path_factory.mktemp("families"))


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    return tmp_path_factory.mktemp("changed")


@contextmanager
def bounded():
    """Have what never ends, or takes all memory, fail; warnings about damage are the libraries'."""

    def stop(*given):
        raise TimeoutError(f"still at work after {SECONDS} s")

    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    earlier = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, before[1]))
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)
        resource.setrlimit(resource.RLIMIT_AS, before)


def loads_or_is_refused(families, copies, change):
    folder = changed_copy(families, change, copies / "model")
    with bounded():
        try:
            found = load(change.family, folder)
            saved_form(folder)
            model_form(folder)
        except UserError as error:
            for fault in error.faults:
                assert fault.endswith((".", "?")) and "\n" not in fault and len(fault) < 1000
            return
    assert np.isfinite(found).all()


linux = pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")


@linux
@same_each_time
@given(data=st.data())
def test_a_changed_model_loads_or_is_refused(families, copies, data):
    loads_or_is_refused(families, copies, data.draw(changes(families, USUAL)))


@linux
@pytest.mark.all_faults
@many
@given(data=st.data())
def test_many_changed_models_load_or_are_refused(families, copies, data):
    loads_or_is_refused(families, copies, data.draw(changes(families, families)))


RECIPE = """\
name: changed
output_dir: {folder}/out
cache_dir: {folder}/cache
data: {{train: {folder}/text.txt}}
args: {{max_steps: 2, per_device_train_batch_size: 8, use_cpu: true, disable_tqdm: true}}
stages:
  - name: one
    model: {model}
    loss: {loss}
"""


def answer(command, *arguments):
    """Run a command, and return its exit status and what it told."""
    main = command_of(command)
    told = StringIO()
    with bounded(), redirect_stdout(StringIO()), redirect_stderr(told):
        status = main([str(argument) for argument in arguments])
    return status, told.getvalue()


def commands_tell(families, copies, change):
    folder = changed_copy(families, change, copies / "model")
    (copies / "text.txt").write_text("".join(f"{text}\n" for text in make_sentences(40)))
    write_rows(copies / "pairs.jsonl", make_pairs(16, 1))
    model = {"base": str(folder)} | ({"pooling": "mean"} if change.family == "plain" else {})
    recipe = RECIPE.format(folder=copies, model=json.dumps(model), loss="{type: SimCSELoss}")
    (copies / "recipe.yaml").write_text(recipe)
    pooling = ["--pooling", "mean"] if change.family == "plain" else []
    for status, told in (
        answer("train", copies / "recipe.yaml", "--dry-run"),
        # An undefined score is a task without a result.
        answer("eval", folder, "--data", copies / "pairs.jsonl", *pooling),
    ):
        assert status in (0, 2, 3), told
        assert "Traceback" not in told
    assert not (copies / "out").exists()


@linux
@some_commands
@given(data=st.data())
def test_commands_tell_of_a_changed_model(families, copies, data):
    commands_tell(families, copies, data.draw(changes(families, USUAL)))


@linux
@pytest.mark.all_faults
@many_commands
@given(data=st.data())
def test_commands_tell_of_many_changed_models(families, copies, data):
    commands_tell(families, copies, data.draw(changes(families, set(families) - {"cross"})))


def test_changes_are_made_as_they_are_told(families, copies):
    """A change that changed nothing would show nothing."""
    folder = changed_copy(
        families, Change("st", "config.json", ("hidden_act",), REMOVED), copies / "model"
    )
    assert "hidden_act" not in json.loads((folder / "config.json").read_text())
    changed_copy(families, Change("twin", "config.json", ("tower", "vocab_size"), -1), folder)
    assert json.loads((folder / "config.json").read_text())["tower"]["vocab_size"] == -1
    changed_copy(families, Change("st", "modules.json", fate="a link to nowhere"), folder)
    assert (folder / "modules.json").is_symlink() and not (folder / "modules.json").exists()
    assert {"config.json", "1_Pooling/config.json", "model.safetensors"} <= set(
        files_of(families["st"])
    )
