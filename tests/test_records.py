"""Records that were changed since they were written are used as they are, or refused in a line."""

import copy
import json
import shutil
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from conftest import make_labelled, make_model, make_pairs, make_sentences, save_encoder, write_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from st_jtcse.atomic import to_json
from st_jtcse.cli import eval as evaluate
from st_jtcse.cli import push, train
from st_jtcse.errors import UserError, refusal
from st_jtcse.evaluation.given_models import load_model
from st_jtcse.evaluation.results import Results
from st_jtcse.evaluation.selection import own_sets, select, suite_of_tasks
from st_jtcse.hub.cards import updated_card
from st_jtcse.papers.cli import convergence
from st_jtcse.recipe.load import load_recipe
from st_jtcse.records import EvaluationResults, RunResults, StageRecord, read
from st_jtcse.reports import dev_curves, seed_reports
from st_jtcse.reports.evaluation_report import suite_table, write_evaluation
from st_jtcse.reports.run_report import results_table
from st_jtcse.training.as_shipped import ShippedScores
from st_jtcse.training.checkpoints import state_of
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.run_results import best_stage, leave_report
from st_jtcse.training.stage_inputs import load_inputs
from st_jtcse.training.stage_lines import tell_end

OLDER = sorted((Path(__file__).parent / "assets").glob("*/interrupted_run/run"))
TASKS = ["senteval/STS12", "senteval/CR"]
# What may stand anywhere in place of what was there.
VALUES = [
    *(None, True, 0, -1, 3.5, 10**30, 1e300, float("inf"), float("nan")),
    *("", "x", "../../x", "a\nb", "\0", "[red]"),
    *([], [1], ["x"], {}, {"a": 1}, {"x": {"y": "z"}}),
]
REMOVED, RENAMED = object(), object()


def places(tree, above=()):
    """The paths of all that stands in a tree; of a list's items of the first two."""
    yield above
    children = tree.items() if isinstance(tree, dict) else ()
    if isinstance(tree, list):
        children = enumerate(tree[:2])
    for key, value in children:
        yield from places(value, (*above, key))


def changed(tree, place, value):
    if not place:
        return None if value in (REMOVED, RENAMED) else value
    tree = copy.deepcopy(tree)
    holder = tree
    for key in place[:-1]:
        holder = holder[key]
    if value not in (REMOVED, RENAMED):
        holder[place[-1]] = value
        return tree
    was = holder.pop(place[-1])
    if value is RENAMED and isinstance(holder, dict):
        holder["../\0"] = was
    return tree


@contextmanager
def told():
    """Let a fault of one line pass, also one of the disk, and nothing else."""
    try:
        yield
    except UserError as error:
        assert error.faults and all(fault.endswith((".", "?")) for fault in error.faults)
        assert "\n" not in str(error)
    except OSError as error:
        assert refusal(error)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A finished run with verdicts and examples, cut off copies of it, and its evaluation."""
    root = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr("st_jtcse.training.runner.rehearse", lambda *given: [])
        make_model(save_encoder(root / "plain", 1, num_hidden_layers=2), "mean").save_pretrained(
            str(root / "mine"), create_model_card=False
        )
        (root / "text.txt").write_text("\n".join(make_sentences(32)) + "\n")
        write_rows(root / "graded.jsonl", make_pairs(20, 2))
        write_rows(root / "topics.jsonl", make_labelled(20, 3))
        subsets = make_pairs(20, 1, subset="MSRpar") + make_pairs(12, 2, subset="OnWN")
        write_rows(root / "data" / "sts" / "sts12.test.jsonl", subsets)
        write_rows(root / "data" / "transfer" / "cr.jsonl", make_labelled(60, 5))
        recipe = {
            "name": "tiny",
            "output_dir": "run",
            "data": {"train": "text.txt"},
            "evaluate": {
                "dev": "graded.jsonl",
                "test": {"graded": "graded.jsonl", "topics": "topics.jsonl"},
            },
            "args": {
                "max_steps": 4,
                "per_device_train_batch_size": 8,
                "use_cpu": True,
                "disable_tqdm": True,
                "eval_strategy": "steps",
                "eval_steps": 2,
                "logging_steps": 1,
            },
            "stages": [
                {"name": "one", "model": {"base": "./mine"}, "loss": {"type": "SimCSELoss"}},
                {"name": "two", "model": {"base": "stage:one"}, "loss": None},
            ],
        }
        (root / "tiny.yaml").write_text(json.dumps(recipe))
        assert train.main(["tiny.yaml"]) == 0
        given = [*(word for task in TASKS for word in ("--task", task)), "--data", "data"]
        assert evaluate.main(["run/two", *given, "--data", "graded.jsonl", "--card"]) == 0
    return root


def stage_is_used(root, loaded, inputs):
    """All that reads a stage's record, as a run does that is gone on with."""
    folder = RunFolder(root)
    stages = {stage.name: stage for stage in loaded.stages}
    hashes = {name: own.hashes for name, own in inputs.items()}
    folder.check_resumable(list(stages), stages, hashes)
    shipped = ShippedScores(stages)
    found = leave_report(loaded.recipe, folder, shipped, inputs)
    to_json(found.plain())
    results_table(found).terminal()
    best_stage(found)
    for record in found.stages:
        tell_end(record, 1.0)
    records = {record.name: record for record in found.stages}
    rows = seed_reports.summarize([("one", records), ("other", records)], list(stages))
    seed_reports.sweep_table(rows, "tiny", shipped.scores, {}).markdown()
    updated_card(root / "one")


def run_is_used(root):
    """All that reads a run's results."""
    shipped = ShippedScores({})
    shipped.take_up(root / "results.json")
    to_json(shipped.scores)
    curves = dev_curves.read_curves([root])
    score = seed_reports.common_score(curves)
    rows = seed_reports.convergence(curves, score)
    seed_reports.convergence_table(rows, score, curves).terminal()


def evaluation_is_used(root, evaluated, data):
    """All that reads an evaluation's results, as st-eval does that goes on with them."""
    own, jobs = own_sets([data / "graded.jsonl"])
    tables = [suite_of_tasks(TASKS), own]
    results = Results(evaluated, root / "two" / "evaluation")
    results.run(tables, select(tables[:1], data / "data") | jobs, 64, lambda key, outcome: None)
    for table in tables:
        suite_table(table.name, results.data.suites[table.name]).terminal()
    write_evaluation(root / "two" / "evaluation", results.data)


def card_is_used(root):
    updated_card(root / "two")


@pytest.fixture(scope="module")
def uses(world, tmp_path_factory):
    """By kind of record: the file, and what reads it."""
    root = Path(shutil.copytree(world / "run", tmp_path_factory.mktemp("used") / "run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(world)
        loaded = load_recipe("run/recipe.yaml")
        inputs = load_inputs(loaded.stages)
        evaluated = replace(load_model("run/two"), name="two")
        patch.setattr("st_jtcse.reports.evaluation_report.save", no_picture)
        yield {
            "stage": (
                root / "one/training_results.json",
                partial(stage_is_used, root, loaded, inputs),
            ),
            "run": (root / "results.json", partial(run_is_used, root)),
            "card": (root / "two/evaluation/results.json", partial(card_is_used, root)),
            "evaluation": (
                root / "two/evaluation/results.json",
                partial(evaluation_is_used, root, evaluated, world),
            ),
        }


def no_picture(*given):
    raise UserError("no pictures")


def check(path, content, use):
    whole = path.read_bytes()
    try:
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        with told():
            use()
    finally:
        path.write_bytes(whole)


def sample(count):
    return settings(max_examples=count, derandomize=True, deadline=None, database=None)


def changes(tree):
    """One change to a tree, or what is left of its file."""
    one = st.tuples(
        st.sampled_from(list(places(tree))), st.sampled_from([*VALUES, REMOVED, RENAMED])
    )
    text = json.dumps(tree).encode()
    cut = st.integers(0, len(text)).map(lambda end: text[:end])
    return st.one_of(one.map(lambda given: changed(tree, *given)), cut)


@pytest.mark.parametrize(
    ("kind", "count"), [("stage", 60), ("run", 60), ("card", 40), ("evaluation", 15)]
)
def test_a_change_is_used_or_told(uses, kind, count):
    path, use = uses[kind]
    tree = json.loads(path.read_text())

    @sample(count)
    @given(content=changes(tree))
    def try_one(content):
        check(path, content, use)

    try_one()


@pytest.mark.all_faults
@pytest.mark.parametrize("kind", ["stage", "run", "card", "evaluation"])
def test_every_change_is_used_or_told(uses, kind):
    path, use = uses[kind]
    whole = path.read_bytes()
    tree = json.loads(whole)
    # An evaluation takes thirty times as long as the others.
    every = 30 if kind == "evaluation" else 1
    found = [
        changed(tree, place, value)
        for place in places(tree)
        for value in (*VALUES, REMOVED, RENAMED)
    ]
    found += [whole[:end] for end in range(0, len(whole), 50)]
    for content in found[::every]:
        check(path, content, use)


def test_a_changed_state_of_a_trainer_is_used_or_told(tmp_path):
    """Also where the manifest vouches for it, as for one of another version of transformers."""
    state = {
        "global_step": 2,
        "max_steps": 4,
        "best_global_step": 2,
        "best_metric": 0.5,
        "log_history": [{"loss": 1.0, "step": 2, "train_seconds": 1.0}],
    }

    @sample(60)
    @given(content=changes(state))
    def try_one(content):
        path = tmp_path / "trainer_state.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        with told():
            found = state_of(tmp_path)
            assert found.global_step >= 0 and found.max_steps >= 0

    try_one()
    (tmp_path / "trainer_state.json").write_text(json.dumps(state | {"of_another_version": 1}))
    with pytest.raises(UserError, match="is of another version of transformers"):
        state_of(tmp_path)


# In the world's folder, of a copy of its run.
COMMANDS = {
    "resume": (train.main, "tiny.yaml --resume --output-dir {run}"),
    "card": (evaluate.main, "{run}/two --data graded.jsonl --card"),
    "push": (push.main, "{run}/two org/model --dry-run"),
    "report": (convergence.main, "{run} --output-dir {run}/report"),
}
STAGE, RUN = "two/training_results.json", "results.json"
EVALUATION = "two/evaluation/results.json"
# A file that would be written again, and is not what was written there.
CHANGED = "is not what st-jtcse wrote there, or was changed since"


@pytest.mark.usefixtures("unrehearsed")
@pytest.mark.parametrize(
    ("command", "file", "place", "value", "fault"),
    [
        ("resume", STAGE, ("spearman", "dev"), "80", "spearman.dev: expected a number, found '80'"),
        ("resume", STAGE, ("steps",), REMOVED, "steps: expected a value, found none"),
        (
            "resume",
            STAGE,
            ("verdicts", 0, "verdict"),
            "good",
            "verdicts[0].verdict: expected 'better'",
        ),
        ("resume", STAGE, ("examples", "rows"), [10**6], None),
        ("resume", RUN, ("as_shipped", "mine", "dev"), "x", CHANGED),
        ("resume", RUN, (), [], CHANGED),
        ("card", EVALUATION, ("suites", "data"), 5, "suites.data: expected a mapping, found 5"),
        ("card", EVALUATION, ("tasks", "senteval/CR", "scores"), {}, CHANGED),
        ("card", STAGE, ("metrics",), [], "metrics: expected a mapping, found a list of 0"),
        ("push", STAGE, ("weights_sha256",), {}, None),
        (
            "report",
            RUN,
            ("stages", 0, "log", 0, "step"),
            -1,
            "log[0]: expected 'step' of at least 0",
        ),
        ("report", RUN, ("seed",), 1.5, "seed: expected a whole number, found 1.5"),
    ],
)
def test_commands_tell_what_does_not_fit(
    world, tmp_path, monkeypatch, capsys, command, file, place, value, fault
):
    run = Path(shutil.copytree(world / "run", tmp_path / "run"))
    monkeypatch.chdir(world)
    monkeypatch.setattr("st_jtcse.reports.evaluation_report.save", no_picture)
    tree = json.loads((run / file).read_text())
    (run / file).write_text(json.dumps(changed(tree, place, value)))
    main, given = COMMANDS[command]
    status = main(given.format(run=run).split())
    error = capsys.readouterr().err
    assert status == (0 if fault is None else 2) and "Traceback" not in error
    if fault is not None:
        assert f"{file} is {'not what' if fault is CHANGED else 'damaged, or not'}" in error
        assert fault in error
        assert len(error.strip().splitlines()) == 1


def test_what_is_read_is_written_again_as_it_was(world):
    stages = json.loads((world / "run/results.json").read_text())["stages"]
    for stage in stages:
        path = world / "run" / stage["name"] / "training_results.json"
        assert to_json(read(StageRecord, path, "").plain()) == path.read_text()
        assert to_json(stage) == path.read_text()
    path = world / "run/two/evaluation/results.json"
    assert to_json(read(EvaluationResults, path, "").plain()) == path.read_text()
    path = world / "run/results.json"
    assert to_json(read(RunResults, path, "").plain()) == path.read_text()


@pytest.mark.parametrize("run", OLDER, ids=lambda path: path.parents[1].name)
def test_records_of_other_versions_are_read(run, tmp_path):
    path = run / "encoder/training_results.json"
    record, told = read(StageRecord, path, ""), json.loads(path.read_text())
    assert record.plain() == told
    assert (record.metrics, record.settings_sha256, record.best_dev) == ({}, {}, None)
    assert read(RunResults, run / "results.json", "").stages[0] == record
    later = tmp_path / "later.json"
    later.write_text(json.dumps(told | {"of_a_later_version": [1, {"a": None}]}))
    assert read(StageRecord, later, "").plain() == json.loads(later.read_text())
