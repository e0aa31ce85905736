"""st-train from a recipe to finished stages, on tiny models."""

import json
import os
import signal
import time

import numpy as np
import pytest
import yaml
from conftest import make_sentences, save_encoder
from processes import start
from sentence_transformers import SentenceTransformer

from st_jtcse.cli.train import main
from st_jtcse.ownership import LIST

STEPS = 6


@pytest.fixture
def project(tmp_path):
    """A folder with two encoders, text, pairs and a three-stage recipe."""
    save_encoder(
        tmp_path / "a", 14, num_hidden_layers=2
    )  # Trained, it is best after four of the six steps.
    save_encoder(tmp_path / "b", 2, num_hidden_layers=2)
    (tmp_path / "text.txt").write_text("\n".join([*make_sentences(64), "", "the dog runs"]) + "\n")
    left, right = make_sentences(30, seed=5), make_sentences(30, seed=6)
    for name, rows in (("dev", range(15)), ("test", range(15, 30))):
        lines = [
            {
                "sentence1": left[i],
                "sentence2": right[i],
                "score": len(set(left[i].split()) & set(right[i].split())),
            }
            for i in rows
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    recipe = {
        "name": "tiny",
        "seed": 7,
        "output_dir": str(tmp_path / "run"),
        "cache_dir": str(tmp_path / "cache"),
        "data": {"train": "text.txt"},
        "evaluate": {"dev": "dev.jsonl", "test": {"test": "test.jsonl"}},
        "args": {
            "max_steps": STEPS,
            "per_device_train_batch_size": 8,
            "learning_rate": 1e-3,
            "eval_strategy": "steps",
            "eval_steps": 2,
            "logging_steps": 1,
            "use_cpu": True,
            "disable_tqdm": True,
        },
        "stages": [
            {
                "name": "encoder",
                "model": {"base": "./a", "pooling": "cls"},
                "loss": {"type": "SimCSELoss"},
            },
            {
                "name": "joint",
                "model": {"towers": ["stage:encoder", "./b"], "pooling": "cls", "dropout": 0.2},
                "loss": {"type": "JTCSELoss"},
            },
            {
                "name": "distilled",
                "model": {"base": "stage:encoder", "layers": [1]},
                "teachers": [{"model": "stage:joint"}],
                "loss": {"type": "MSELoss"},
            },
        ],
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    return tmp_path


def train(project, *options):
    return main([str(project / "recipe.yaml"), *options])


def refusal(project, capsys, *options):
    """The sentences on stderr of a refused run, which must leave nothing behind."""
    before = {path for path in project.rglob("*")}
    assert train(project, *options) == 2
    assert {path for path in project.rglob("*")} == before
    return capsys.readouterr().err


def results(project, folder="run"):
    return json.loads((project / folder / "results.json").read_text())


def weights(project, folder="run"):
    return {stage["name"]: stage["weights_sha256"] for stage in results(project, folder)["stages"]}


def test_a_run_leaves_a_recipe_results_and_models_that_load(project, capsys):
    assert train(project) == 0
    found = results(project)
    assert found["finished"] and found["seed"] == 7 and found["environment"]["torch"]
    assert [stage["name"] for stage in found["stages"]] == ["encoder", "joint", "distilled"]
    for stage in found["stages"]:
        assert (
            stage["steps"] == STEPS
            and stage["sentences"] == 65
            and stage["blank_lines_skipped"] == 1
        )
        assert stage["spearman"].keys() == stage["spearman_start"].keys() == {"dev", "test"}
        assert stage["data_sha256"].keys() == {"train", "dev", "test"}
    logged = found["stages"][1]["log"][0]
    assert {"nce", "icnce", "icnce_cross", "ictm"} <= logged.keys()

    encoder, joint, distilled = (
        SentenceTransformer(str(project / "run" / name), device="cpu")
        for name in ("encoder", "joint", "distilled")
    )
    assert joint.encode(["the dog runs"]).shape == (1, 32)
    assert distilled[0].model.config.num_hidden_layers == 1
    assert (
        encoder[0].model.config.hidden_dropout_prob
        == joint[0].model.config.tower.hidden_dropout_prob
        == 0.1
    )
    assert len(found["stages"][2]["weights_sha256"]) == 1
    # The best dev score among the evaluations is the saved model's.
    for stage in found["stages"]:
        scores = [
            entry["eval_dev_spearman_cosine"]
            for entry in stage["log"]
            if "eval_dev_spearman_cosine" in entry
        ]
        assert stage["spearman"]["dev"] == pytest.approx(100 * max(scores), abs=1e-3)
    table = capsys.readouterr().out
    assert "distilled" in table and f"{found['stages'][2]['spearman']['test']:.2f}" in table
    left_over = [
        path.name
        for path in (project / "run").rglob("*")
        if "checkpoint" in path.name or (path.name[0] == "." and path.name != LIST)
    ]
    assert not left_over

    # The resolved recipe is a recipe: run from elsewhere it gives the same weights.
    again = project / "again"
    assert main([str(project / "run" / "recipe.yaml"), "--output-dir", str(again)]) == 0
    assert weights(project, "again") == weights(project)


@pytest.mark.usefixtures("unrehearsed")
def test_another_seed_gives_other_weights(project):
    assert train(project, "--stage", "encoder") == 0
    assert (
        train(
            project, "--stage", "encoder", "--set", "seed=8", "--output-dir", str(project / "other")
        )
        == 0
    )
    assert weights(project)["encoder"] != weights(project, "other")["encoder"]


@pytest.mark.usefixtures("unrehearsed")
def test_stages_one_by_one_equal_the_whole_run(project, capsys):
    assert train(project, "--output-dir", str(project / "whole")) == 0
    assert train(project, "--stage", "encoder") == 0
    assert not results(project)["finished"]
    assert train(project, "--stage", "joint", "--resume") == 0
    assert train(project, "--resume") == 0
    assert weights(project) == weights(project, "whole")


def test_an_interrupt_saves_a_checkpoint_and_exits_130(project):
    options = ["--stage", "encoder", "--set", "args.max_steps=400", "--set", "args.eval_steps=200"]
    said = project / "said.txt"
    process = start(train, project, *options, said=said)
    while not said.exists() or "encoder: SimCSELoss, 400 steps" not in said.read_text():
        assert process.is_alive(), said.read_text()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    process.join(120)
    assert process.exitcode == 130, said.read_text()
    (told,) = said.read_text().partition("400 steps")[2].splitlines()[1:]
    assert told.startswith("Interrupted in stage 'encoder' at step") and "--resume" in told
    assert list((project / "run" / "encoder").glob("checkpoint-*/trainer_state.json"))


@pytest.mark.usefixtures("unrehearsed")
def test_a_loss_that_is_not_finite_stops_at_its_step_and_keeps_the_checkpoint(project, capsys):
    # A step of 1e30 turns the weights, and so the next loss, into NaN.
    options = [
        "--stage",
        "encoder",
        "--set",
        "args.learning_rate=1e30",
        "--set",
        "args.eval_strategy=no",
    ]
    assert (
        train(project, *options, "--set", "args.save_strategy=steps", "--set", "args.save_steps=1")
        == 2
    )
    message = capsys.readouterr().err
    assert (
        "Stage 'encoder' stopped: the loss term 'loss' is nan; the last checkpoint is kept."
        in message
    )
    assert "Traceback" not in message
    assert list((project / "run" / "encoder").glob("checkpoint-*"))
    assert not (project / "run" / "encoder" / "modules.json").exists()


def test_a_dry_run_prints_the_plan_and_writes_nothing(project, capsys):
    before = {path for path in project.rglob("*")}
    assert train(project, "--dry-run") == 0
    assert {path for path in project.rglob("*")} == before
    plan = capsys.readouterr().out
    for word in (
        "encoder",
        "JTCSELoss",
        "65",
        "dev, test",
        "results.json",
        "run/joint",
        "without --dry-run",
    ):
        assert word in plan
    told = [
        "encoder: a: CLS state (pooling: cls), a plain encoder",
        f"dev: {project / 'dev.jsonl'} (yours)",
    ]
    told += [
        "training takes about a minute",
        "memory: 0.0 GB for weights",
        "; disk: up to 0.0 GB, ",
        " GB free)",
    ]
    for words in told:
        assert words in plan


def test_a_command_without_a_recipe_says_where_they_are(capsys):
    assert main([]) == 2
    assert (
        capsys.readouterr().err
        == "Name a recipe: a YAML file, or one of those that st-train --list shows.\n"
    )


@pytest.mark.usefixtures("unrehearsed")
def test_the_output_folder_is_not_shared(project, capsys):
    assert train(project, "--stage", "encoder") == 0
    capsys.readouterr()
    assert "holds a run of this recipe already; continue it with --resume, or choose" in refusal(
        project, capsys
    )
    other = refusal(project, capsys, "--set", "seed=1")
    assert "holds the run of another recipe; choose another folder with --output-dir" in other
    (project / "full").mkdir()
    (project / "full" / "thesis.txt").write_text("x")
    full = refusal(project, capsys, "--output-dir", str(project / "full"))
    assert "full is not empty; choose another folder.\n" in full


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--stage", "joimt"],
            "--stage: 'joimt' is not a stage of the recipe (encoder, joint, distilled). Did you "
            "mean",
        ),
        (
            ["--stage", "joint"],
            "--stage: 'joint' starts from stage:encoder, which is not finished in",
        ),
        (["--set", "data.train=none.txt"], "none.txt does not exist"),
        (
            ["--set", "args.per_device_train_batch_size=100"],
            "65 training sentences, fewer than one batch of 100; add",
        ),
        (["--set", "stages.joint.model.towers=[stage:distilled, ./b]"], "stage:distilled"),
        (["--set", "args.save_steps=3"], "args do not fit together"),
        (
            ["--set", "args.fsdp=true"],
            "FSDP was chosen, but Sentence-Transformers' trainer neither saves a sharded",
        ),
        (
            ["--set", "stages.encoder.loss.temperature=-1.0"],
            "temperature: expected a number above 0, found -1.0.",
        ),
    ],
)
def test_faulty_input_is_told_before_anything_is_written(project, capsys, options, message):
    assert message in refusal(project, capsys, *options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--set", "stages.encoder.model.base=nobody/nothing"],
            "The model 'nobody/nothing' cannot be loaded",
        ),
        (
            ["--set", "stages.encoder.model.layers=[0, 9]"],
            "'layers' names layer 9, but the model has 2",
        ),
        (
            [
                "--set",
                "stages.encoder.model={towers: [./a, ./b], pooling: cls, cross_attention_every: 3}",
            ],
            "cross_attention_every must divide the towers' 2 layers, found 3; use one of 1, 2",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_told_and_leaves_no_stage(
    project, capsys, monkeypatch, options, message
):
    monkeypatch.chdir(project)
    assert train(project, "--stage", "encoder", *options) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert not (project / "run" / "encoder" / "modules.json").exists()
    assert not (project / "run" / "results.json").exists()


def test_towers_of_two_shapes_are_told(project, capsys, monkeypatch):
    monkeypatch.chdir(project)
    save_encoder(project / "c", 3, num_hidden_layers=2, hidden_size=16)
    assert (
        train(
            project,
            "--stage",
            "encoder",
            "--set",
            "stages.encoder.model={towers: [./a, ./c], pooling: cls}",
        )
        == 2
    )
    assert (
        "The towers differ in hidden_size: 32 in the first, 16 in the second"
        in capsys.readouterr().err
    )


@pytest.mark.usefixtures("unrehearsed")
def test_distilling_moves_the_student_towards_the_teacher(project):
    assert train(project, "--set", "args.max_steps=30", "--set", "args.eval_steps=10") == 0
    stage = results(project)["stages"][2]
    losses = [float(entry["loss"]) for entry in stage["log"] if "loss" in entry]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])
