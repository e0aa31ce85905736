"""A small run of three stages, an undisturbed one to compare with, and a way to let others die."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import make_sentences, save_encoder
from processes import group_of_two
from sentence_transformers import CrossEncoder

from faults.dying_run import tear
from st_jtcse.hashing import sha256, weight_files_sha256
from st_jtcse.hub.card_results import TRAINING_RECORD
from st_jtcse.modules import load_sentence_transformer
from st_jtcse.ownership import LIST

TIMES = {
    "seconds",
    "environment",
    "train_seconds",
    "eval_runtime",
    "eval_samples_per_second",
    "eval_steps_per_second",
}
SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
STEPS = {"max_steps": 4, "logging_steps": 1}
WITH_DEV = {"eval_strategy": "steps", "eval_steps": 2}
WITHOUT_DEV = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 1}
ENCODER = {
    "name": "encoder",
    "model": {"base": "./a", "pooling": "cls"},
    "loss": {"type": "SimCSELoss"},
}


@dataclass(frozen=True)
class Ended:
    """How a run ended: its exit status, the negative signal that killed it; what it said; its
    moments. Of two processes, the statuses and what each said.
    """

    status: int | list[int]
    said: str | list[str]
    moments: list


class Runs:
    """Starts runs in projects, each in a process of its own with everything imported."""

    def __init__(self, folder):
        self.kept, self._files = (
            folder / "kept",
            {name: str(folder / name) for name in ("log", "diary")},
        )
        self.kept.mkdir()
        script = Path(__file__).with_name("dying_run.py")
        command, environment = [sys.executable, str(script)], {**os.environ, "HF_HUB_OFFLINE": "1"}
        environment["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # As st-train sets it before torch is there.
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._server = subprocess.Popen(command, env=environment, **pipes)
        assert self._server.stdout.readline() == "ready\n"

    def close(self):
        self._server.communicate()

    def __call__(self, project, *options, recipe="recipe.yaml", rehearse=False, **order):
        """Run st-train in a project; the order says which fault it meets.

        Only a first run of a recipe need rehearse it: a rehearsal sees nothing of the folders where
        faults strike.
        """
        order = {
            "folder": str(project),
            "root": str(project),
            "arguments": [recipe, *options],
            **order,
        }
        self._server.stdin.write(json.dumps({**order, **self._files, "rehearse": rehearse}) + "\n")
        self._server.stdin.flush()
        statuses = json.loads(self._server.stdout.readline())
        ends = [""] if len(statuses) == 1 else ["-0", "-1"]
        said = [Path(self._files["log"] + end).read_text(errors="replace") for end in ends]
        diary = Path(self._files["diary"] + ends[0]).read_text()
        # A limit on files may cut the diary too.
        moments = [json.loads(line) for line in diary.splitlines() if line.endswith("}")]
        if len(statuses) == 1:
            return Ended(statuses[0], said[0], moments)
        return Ended(statuses, said, moments)

    def of_two(self, project, *options, each=({}, {}), **order):
        """Run st-train in two processes; `each` says what the two meet."""
        store, group = group_of_two()
        ended = self(project, *options, **{"group": group, "each": each, **order})
        del store  # Which both have needed until here.
        return ended


class Undisturbed:
    """A run to which nothing happened: what it made, and its moments, each of which can be gone
    back to.

    A kill leaves the disk as it was at its moment, so one run serves for all kills. Whoever goes
    back finds the project in one place, for a recipe names its data by whole paths.
    """

    def __init__(self, runs, project, *options, **order):
        ended = runs(project, *options, rehearse=True, keep=str(runs.kept), **order)
        assert ended.status == 0, ended.said
        self.moments, self._kept, self._place = ended.moments, runs.kept, project
        self.folder = Path(shutil.copytree(project, project.with_name("undisturbed")))

    def state(self, at, torn=False):
        """What of a moment, the first being 1, a run that goes on from it can see."""
        moment = self.moments[at - 1]
        return frozenset((moment["tree"] | {"run/run.log": None}).items()), torn and moment["torn"]

    def back_to(self, at, torn=False):
        """Lay out the project as a kill at a moment leaves it."""
        moment = self.moments[at - 1]
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir()
        for path, digest in moment["tree"].items():
            if digest is None:
                (self._place / path).mkdir(exist_ok=True, parents=True)
            else:
                (self._place / path).parent.mkdir(exist_ok=True, parents=True)
                shutil.copyfile(self._kept / digest, self._place / path)
        if torn:
            tear(self._place / moment["torn"])
        return self._place

    def first(self, path):
        """The number of the first moment at a path that begins so."""
        return next(
            n for n, moment in enumerate(self.moments, 1) if moment["path"].startswith(path)
        )

    def alike(self, moments):
        """The number of the moment at which the last of these was met: where a lock is waited for,
        a run does a thing or two more.
        """
        keys = [_key(moment) for moment in moments]
        count = keys.count(keys[-1])
        same = [n for n, own in enumerate(self.moments, 1) if _key(own) == keys[-1]]
        return same[count - 1]

    def next_stage(self, at):
        """The path at which a stage begins after a moment, and the number of that moment; None in
        the last stage.
        """
        begins = {path: self.first(path) for path in ("run/joint", "run/distilled")}
        return next(((path, first) for path, first in begins.items() if first > at), None)


def _key(moment):
    return moment["event"], RANDOM.sub("", moment["path"])


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    runs = Runs(tmp_path_factory.mktemp("runs"))
    yield runs
    runs.close()


def write_project(folder, stages, **more):
    """Two encoders, text, pairs and the recipe of some stages."""
    folder.mkdir(exist_ok=True)
    for name, seed in (("a", 1), ("b", 2)):
        save_encoder(folder / name, seed, **SMALL)
    (folder / "text.txt").write_text("\n".join(make_sentences(24)) + "\n")
    left, right = make_sentences(12, seed=5), make_sentences(12, seed=6)
    pairs = [
        {"sentence1": a, "sentence2": b, "score": i % 6}
        for i, (a, b) in enumerate(zip(left, right))
    ]
    (folder / "dev.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    recipe = {
        "name": "tiny",
        "seed": 7,
        "output_dir": "run",
        "cache_dir": "cache",
        "data": {"train": "text.txt"},
        "evaluate": {"dev": "dev.jsonl"},
        "args": {
            "per_device_train_batch_size": 8,
            # A rate that falls to 0 would hide one step too many.
            "lr_scheduler_type": "constant",
            "learning_rate": 1e-3,
            "use_cpu": True,
            "disable_tqdm": True,
            **STEPS,
        },
        "stages": stages,
        **more,
    }
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    return folder


@pytest.fixture(scope="session")
def untouched(tmp_path_factory):
    """The project before any run: an encoder chosen by dev, a twin without dev, and what the twin
    teaches.
    """
    joint = {"towers": ["stage:encoder", "./b"], "pooling": "cls", "dropout": 0.2}
    stages = [
        {**ENCODER, "args": WITH_DEV},
        {"name": "joint", "model": joint, "loss": {"type": "JTCSELoss"}, "args": WITHOUT_DEV},
        {
            "name": "distilled",
            "model": {"base": "stage:encoder", "layers": [0]},
            "teachers": [{"model": "stage:joint"}],
            "loss": {"type": "MSELoss"},
            "args": WITH_DEV,
        },
    ]
    return write_project(tmp_path_factory.mktemp("project"), stages)


@pytest.fixture(scope="session")
def undisturbed(runs, untouched):
    """What the project's run gives when nothing happens, and its moments."""
    return Undisturbed(runs, untouched)


@pytest.fixture
def project(undisturbed):
    """The project before any run."""
    return undisturbed.back_to(1)


@pytest.fixture
def disturb(runs, undisturbed, record_property):
    """Let a run meet each of some faults, and have it resumed."""

    def meet(orders, status, check=lambda project, ended: None):
        def one(order):
            project = undisturbed.back_to(1)
            ended = runs(project, **order)
            assert ended.status == status, f"status {ended.status}: {ended.said}"
            check(project, ended)
            check_that_it_goes_on_alike(runs, project, undisturbed, order.get("at"))

        check_each(orders, one)
        record_property("cases", len(orders))

    return meet


@pytest.fixture
def kill(runs, undisturbed, record_property):
    """Have the run resumed as kills at some moments leave it; those that leave the same bytes are
    one case for it.
    """

    def meet(moments, torn=False, then=None):
        states = {undisturbed.state(at, torn): at for at in moments}

        def one(at):
            project = undisturbed.back_to(at, torn)
            if then is None:
                check_that_it_goes_on_alike(runs, project, undisturbed, at)
            else:  # Which may go on into the next stage.
                then(project)
                check_that_it_ends_alike(runs, project, undisturbed)

        check_each(states.values(), one)
        record_property("cases", len(moments))

    return meet


def check_each(cases, check):
    """Meet all cases, whatever becomes of some, and fail with those that failed."""
    failures = []
    for case in cases:
        try:
            check(case)
        except AssertionError as error:
            failures.append(f"{case}: {str(error)[-900:]}")
    assert not failures, f"{len(failures)} of {len(cases)} failed:\n" + "\n".join(failures)


@pytest.fixture(scope="session")
def every(request):
    """Choose some of many faults, or all where the option asks for them."""

    def some(faults, step, first=0, always=()):
        whole = request.config.getoption("--all-faults")
        return list(faults) if whole else sorted({*list(faults)[first::step], *always})

    return some


def sampled(values, *sample):
    """Parameters of a test, of which all but the sample's are left to the option."""
    return [
        value if value in sample else pytest.param(value, marks=pytest.mark.all_faults)
        for value in values
    ]


def told(project, folder="run"):
    """What a run's record says of each stage that must not depend on how often it was stopped."""
    results = json.loads((project / folder / "results.json").read_text())
    for stage in results["stages"]:
        # But for what the trainer sums up of the steps since it was started.
        log = [entry for entry in stage.get("log", []) if "train_runtime" not in entry]
        stage["log"] = [{key: entry[key] for key in sorted(entry.keys() - TIMES)} for entry in log]
    return [
        f"{stage['name']}.{key}: {stage[key]}"
        for stage in results["stages"]
        for key in stage.keys() - TIMES
    ]


def weights(project, folder="run"):
    finished = (path.parent for path in (project / folder).glob(f"*/{TRAINING_RECORD}"))
    return {stage.name: weight_files_sha256(stage) for stage in finished}


def check_what_looks_finished(project, folder="run"):
    """Every stage with a record loads, and its weights are those of its record."""
    for path in (project / folder).glob(f"*/{TRAINING_RECORD}"):
        record = json.loads(path.read_text())
        assert record["weights_sha256"] == weight_files_sha256(path.parent), path.parent.name
        # What has loaded once need not be loaded again.
        files = [
            file
            for file in path.parent.rglob("*")
            if file.is_file() and file.suffix != ".md" and file != path
        ]
        bytes_of = frozenset(
            (str(file.relative_to(path.parent)), file.read_bytes()) for file in files
        )
        if bytes_of not in _LOADED:
            check_that_it_loads(path.parent)
            _LOADED.add(bytes_of)
    results = project / folder / "results.json"
    # It may hold the scores of the models as shipped before a stage is finished.
    assert (
        not results.exists()
        or (found := json.loads(results.read_text()))["stages"]
        or not found["finished"]
    )


_LOADED = set()


def check_that_it_loads(stage):
    settings = stage / "config_sentence_transformers.json"
    if not settings.exists() or '"CrossEncoder"' not in settings.read_text():
        assert load_sentence_transformer(stage, device="cpu").encode(["the dog"]).shape == (1, 8)
    else:
        assert CrossEncoder(str(stage), device="cpu").predict([("the dog", "a dog")]).shape == (1,)


def check_that_it_goes_on_alike(runs, project, undisturbed, at):
    """Resume a run that was stopped at a moment of its own.

    One in ten goes on to its end. The others are killed where the next stage begins: there the disk
    must hold what it held for the undisturbed run, from where that moment's own case goes on to the
    end.
    """
    following = at and at % 10 and undisturbed.next_stage(at)
    if not following:
        check_that_it_ends_alike(runs, project, undisturbed)
        return
    check_what_looks_finished(project)
    path, moment = following
    ended = runs(project, "--resume", fault="SIGKILL", on=path)
    assert ended.status == -signal.SIGKILL, ended.said
    assert steady(tree_of(project)) == steady(undisturbed.moments[moment - 1]["tree"])
    assert [line for line in told(project) if line not in told(undisturbed.folder)] == []


def check_that_it_ends_alike(runs, project, undisturbed, *options):
    """--resume, or the command itself where nothing was begun, ends with 0 and with the undisturbed
    run's weights.
    """
    check_what_looks_finished(project)
    ended = runs(project, "--resume", *options)
    assert ended.status == 0, ended.said
    check_that_it_has_ended_alike(project, undisturbed, ended)
    return ended


def check_that_it_has_ended_alike(project, undisturbed, ended):
    assert weights(project) == weights(undisturbed.folder), ended.said
    assert [line for line in told(project) if line not in told(undisturbed.folder)] == []
    check_what_looks_finished(project)
    left = [
        path.name
        for path in (project / "run").rglob("*")
        if "checkpoint" in path.name or (path.name[0] == "." and path.name != LIST)
    ]
    assert not left


# Files that tell of times or of the process, without a leading dot, and the end of names that do.
TIMED = {"run.log", "results.json", "training_results.json", "README.md", "trainer_state.json"}
TIMED |= {"checkpoint_manifest.json", "in-use", LIST.removeprefix(".")}
RANDOM = re.compile(r"\.[0-9a-f]{8}(?=\.partial$|/|$)")


def steady(tree):
    """What lies in a folder, but for what two runs never have alike."""
    tree = {RANDOM.sub("", path): digest for path, digest in tree.items()}
    timed = {
        path for path in tree if Path(path).name.removeprefix(".").removesuffix(".partial") in TIMED
    }
    return tree | dict.fromkeys(timed)


def tree_of(project):
    """What lies in a folder: folders, and files by their hashes."""
    return {
        str(path.relative_to(project)): None if path.is_dir() else sha256(path)
        for path in project.rglob("*")
    }
