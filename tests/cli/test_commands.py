"""What all commands share: answers at once, and exit statuses that tell a fault of the user from a
defect.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from conftest import command_of

import st_jtcse
from st_jtcse.cli import convert, exit_status
from st_jtcse.errors import PushFailed, UserError
from st_jtcse.modules import twin_encoder

# Of the package, by --help or --list of any command; in all, with the libraries and Python's own.
OUR_MODULES, ALL_MODULES = 24, 500
ANSWERS = {
    "convergence": ["--help"],
    "convert": ["--help", "join --help", "split --help"],
    "diagnose": ["--help"],
    "push": ["--help"],
    "reproduce": ["--help", "--list"],
    "score": ["--help"],
    "train": ["--help", "--list"],
    "eval": ["--help", "--list"],
}
PLACES = {
    point.name.removeprefix("st-"): point.value.partition(":")[0]
    for point in entry_points(group="console_scripts")
    if point.name.removeprefix("st-") in ANSWERS
}
SCRIPT = """
import contextlib, importlib, io, json, sys, time
told = []
answers, places = json.loads(sys.argv[1])
for name, answers in answers.items():
    command = importlib.import_module(places[name])
    for answer in answers:
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            command.main(answer.split())
        told.append({
            "answer": f"{name} {answer}",
            "text": text.getvalue(),
            "heavy": sorted({"torch", "transformers", "sentence_transformers"} & set(sys.modules)),
            "ours": sum(name.partition(".")[0] == "st_jtcse" for name in sys.modules),
            "all": len(sys.modules),
        })
    for name in [name for name in sys.modules if name.startswith("st_jtcse")]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "st_jtcse.registration"]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def answers():
    """What each command's cheap answers load, one after the other in one fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([ANSWERS, PLACES])],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {told["answer"]: told for told in json.loads(done.stdout)}


@pytest.mark.parametrize(
    "answer", [f"{name} {answer}" for name, answers in ANSWERS.items() for answer in answers]
)
def test_help_and_lists_come_without_torch(answer, answers):
    told = answers[answer]
    assert told["heavy"] == []
    assert told["ours"] <= OUR_MODULES and told["all"] <= ALL_MODULES
    assert "jtcse" in told["text"] if answer.endswith("--list") else "usage: st-" in told["text"]


@pytest.mark.parametrize("name", ANSWERS)
def test_every_command_tells_its_version(name, capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        command_of(name)(["--version"])
    assert capsys.readouterr().out == f"st-{name} (st-jtcse) {st_jtcse.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["qickstart"], "recipe: expected a file or the name of a bundled recipe"),
        (["adapt", "--set", "data.train=none.txt"], "none.txt does not exist; check the path."),
        (["adapt", "--set", "evaluate.test.mine=none.csv"], "none.csv does not exist"),
        (["adapt", "--set", "model=./none"], "none does not exist; check the path."),
        (["adapt", "--set", "modl=x"], "--set modl: expected a known key, found 'modl'."),
        (["adapt", "--set", "seed=x"], "--set seed: expected a whole number, found 'x'."),
        (["adapt", "--stage", "nope"], "--stage: 'nope' is not a stage of the recipe"),
        (["adapt", "--set", "stages.adapted.model.base=stage:none"], "expected an earlier stage"),
    ],
)
def test_common_faults_are_told_before_torch_is_imported(arguments, told, tmp_path):
    script = "import sys; from st_jtcse.cli.train import main; main(sys.argv[1:])"
    script += "; print([name for name in ('torch', 'datasets') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    assert told in done.stderr and done.stdout == "[]\n"


def test_a_shell_completes_options_and_bundled_recipes(tmp_path):
    pytest.importorskip("argcomplete")
    found = {}
    for line in ("st-train --dr", "st-train quick", "st-train --show rankcse-listnet-"):
        asked = {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "told"),
            "_ARGCOMPLETE_IFS": "\n",
        }
        asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
        command = [sys.executable, "-m", "st_jtcse.cli.train"]
        subprocess.run(command, env=dict(os.environ) | asked, check=True, cwd=tmp_path)
        found[line] = sorted((tmp_path / "told").read_text().split())
    assert list(found.values()) == [
        ["--dry-run"],
        ["quickstart"],
        ["rankcse-listnet-bert", "rankcse-listnet-mini"],
    ]


def made(run, interrupted="nothing was kept"):
    return exit_status.command(argparse.ArgumentParser, run, interrupted)


def raises(error):
    def run(options):
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (UserError("a: one.", "b: [bold]two[/]."), 2, "a: one.\nb: [bold]two[/].\n"),
        (PushFailed("The Hub did not take it."), 1, "The Hub did not take it.\n"),
        (KeyboardInterrupt(), 130, "Interrupted; nothing was kept.\n"),
        (KeyboardInterrupt("joint"), 130, "Interrupted in joint; nothing was kept.\n"),
    ],
    ids=["fault", "push", "interrupt", "interrupted stage"],
)
def test_what_a_user_is_meant_to_meet_is_told_without_a_traceback(error, status, told, capsys):
    assert made(raises(error))([]) == status
    assert capsys.readouterr() == ("", told)


def test_the_status_is_what_the_work_returned_and_0_for_nothing():
    assert (made(lambda options: None)([]), made(lambda options: 3)([])) == (0, 3)


def test_what_an_interruption_leaves_may_depend_on_the_options(capsys):
    assert (
        made(raises(KeyboardInterrupt()), lambda options: f"{sorted(vars(options))} is kept")([])
        == 130
    )
    assert capsys.readouterr().err == "Interrupted; [] is kept.\n"


@pytest.mark.parametrize(
    "error", [ValueError("no float"), KeyError("joint"), RuntimeError("shapes\ndiffer"), OSError()]
)
def test_a_defect_is_never_told_as_the_users_fault(error, capsys, monkeypatch, tmp_path):
    # In the midst of a real command.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(twin_encoder, "split_twin", lambda twin, output: raises(error)(None))
    assert convert.main(["split", "twin", "towers"]) == 1
    out, err = capsys.readouterr()
    (kept,) = tmp_path.iterdir()
    (last,) = err.splitlines()
    trace = kept.read_text()
    assert (
        out == "" and "\nTraceback (most recent call last):\n" in trace and "raise error" in trace
    )
    assert any(line.startswith(type(error).__name__) for line in trace.splitlines())
    # The place is the package's own, not that of what it called.
    number = 1 + Path(convert.__file__).read_text().splitlines().index(
        "    split_twin(options.twin, options.output)"
    )
    told = " ".join(str(error).split())
    assert last == (
        f"{type(error).__name__} at {convert.__file__}:{number}{f' ({told})' if told else ''}. "
        "Unless memory, disk or "
        "network failed, this is a defect of st-jtcse or of a library, not a fault of yours: "
        "please report it with "
        f"{kept}."
    )


def test_a_defect_outside_the_package_is_placed_where_it_is(capsys):
    assert made(raises(ValueError("elsewhere")))([]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"ValueError at {__file__}:")


def test_faults_of_the_user_and_defects_share_no_type():
    assert UserError.__mro__[1:] == PushFailed.__mro__[1:] == (Exception, BaseException, object)
