"""Trained, pushed and loaded by name: st-train and a Hub on loopback, then readers in processes of
their own.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import make_pairs, make_sentences, save_encoder, write_rows
from sentence_transformers import SentenceTransformer

from st_jtcse.cli.train import main

SENTENCES = make_sentences(6)
# As on a machine where the package is not installed.
WITHOUT_PACKAGE = "import sys\nsys.modules['st_jtcse'] = None\n"
ENCODE = """
from sentence_transformers import SentenceTransformer
embeddings = SentenceTransformer("{name}", device="cpu"{flag}).encode({sentences!r}).tolist()
"""
REFUSED = """
from sentence_transformers import SentenceTransformer
try:
    SentenceTransformer("{name}", device="cpu")
    raise SystemExit("the model was loaded")
except Exception as error:
    embeddings = str(error)
"""
AUTO_MODEL = """
import torch
from transformers import AutoModel, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("{name}"{flag})
model = AutoModel.from_pretrained("{name}"{flag}).eval()
with torch.inference_mode():
    batch = tokenizer({sentences!r}, padding=True, return_tensors="pt")
    embeddings = model(**batch).last_hidden_state[:, 0].tolist()
"""
EVALUATE = """
import mteb, st_jtcse
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
task = mteb.get_task("STSBenchmark")
task.dataset = DatasetDict(test=Dataset.from_dict({columns!r}))
task.data_loaded = True
model = SentenceTransformer("{name}", device="cpu")
result = mteb.evaluate(model, task, cache=None, show_progress_bar=False)
embeddings = result.task_results[0].get_score()
"""
FLAG = ", trust_remote_code=True"


def recipe(folder):
    data = {"train": str(folder / "text.txt")}
    towers = [str(folder / "encoder_1"), str(folder / "encoder_2")]
    return {
        "name": "jtcse-tiny",
        "output_dir": str(folder / "run"),
        "cache_dir": str(folder / "cache"),
        "data": data,
        "evaluate": {"test": {"mine": str(folder / "test.jsonl")}},
        "args": {"max_steps": 2, "per_device_train_batch_size": 8, "use_cpu": True},
        "stages": [
            {
                "name": "joint",
                "model": {"towers": towers, "pooling": "cls"},
                "loss": {"type": "JTCSELoss"},
            },
            {
                "name": "distilled",
                "model": {"base": towers[0], "pooling": "cls"},
                "loss": {"type": "MSELoss"},
                "teachers": [{"model": "stage:joint", "weight": 0.5}],
            },
        ],
        "push": {
            "repos": {"joint": "org/jtcse-bert", "distilled": "org/jtcse-d-bert"},
            "collection": "JTCSE",
        },
    }


@pytest.fixture
def recipe_file(tmp_path):
    for number in (1, 2):
        save_encoder(tmp_path / f"encoder_{number}", number, num_hidden_layers=2)
    (tmp_path / "text.txt").write_text("\n".join(make_sentences(24)) + "\n")
    write_rows(tmp_path / "test.jsonl", make_pairs(12, 1))
    file = tmp_path / "tiny.yaml"
    file.write_text(json.dumps(recipe(tmp_path)))
    return file


def read(hub, home, token, *scripts):
    """Run readers' scripts on a fresh machine, one after the other, and return their embeddings."""
    environment = hub.environment(home, token=token) | {"PYTHONSAFEPATH": "1"}
    script = "\n".join(
        f"{script}\nimport json\nprint('RESULT', json.dumps(embeddings))" for script in scripts
    )
    told = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=home,
        stdin=subprocess.DEVNULL,  # Nobody answers questions.
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (
        hub.write_token not in told.stdout + told.stderr
        and hub.read_token not in told.stdout + told.stderr
    )
    results = [
        line.removeprefix("RESULT ")
        for line in told.stdout.splitlines()
        if line.startswith("RESULT ")
    ]
    assert len(results) == len(scripts), told.stdout + told.stderr
    return list(map(json.loads, results))


def test_trained_and_pushed_by_one_command_models_load_by_name_everywhere(
    hub, recipe_file, tmp_path, capsys, monkeypatch
):
    folder, home = tmp_path / "run", tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HF_TOKEN", hub.write_token)
    assert main([str(recipe_file)]) == 0
    told = capsys.readouterr()
    assert hub.write_token not in told.out + told.err
    for path in folder.rglob("*"):
        assert not path.is_file() or hub.write_token.encode() not in path.read_bytes()
    assert {
        name: (found.private, len(found.commits)) for name, found in hub.repositories.items()
    } == {
        "org/jtcse-bert": (True, 2),
        "org/jtcse-d-bert": (True, 2),
    }
    (collection,) = hub.collections.values()
    assert [item["id"] for item in collection.items] == ["org/jtcse-bert", "org/jtcse-d-bert"]
    results = {
        stage["name"]: stage
        for stage in json.loads((folder / "results.json").read_text())["stages"]
    }
    card = hub.repositories["org/jtcse-bert"].files()["README.md"].decode()
    assert (
        f"{results['joint']['spearman']['mine']:.2f}" in card
        and 'SentenceTransformer("org/jtcse-bert")' in card
    )

    twin, distilled = (
        SentenceTransformer(str(folder / stage)).encode(SENTENCES)
        for stage in ("joint", "distilled")
    )
    fill = {"name": "org/jtcse-bert", "sentences": SENTENCES, "flag": ""}
    # With the package, without any flag; and MTEB's evaluation, of the model by its name.
    rows = make_pairs(12, 1)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    encode = "import st_jtcse" + ENCODE.format(**fill)
    found, score = read(
        hub, home, hub.read_token, encode, EVALUATE.format(name="org/jtcse-bert", columns=columns)
    )
    np.testing.assert_allclose(found, twin, atol=1e-6)
    assert 100 * score == pytest.approx(results["joint"]["spearman"]["mine"], abs=0.01)
    # Without the package, refused with the libraries' own advice; with the flag, in plain
    # transformers too; the distilled model anywhere.
    scripts = [
        REFUSED.format(**fill),
        *(script.format(**fill | {"flag": FLAG}) for script in (ENCODE, AUTO_MODEL)),
    ]
    scripts.append(ENCODE.format(**fill | {"name": "org/jtcse-d-bert"}))
    advice, by_name, plain, alone = read(
        hub, home, hub.read_token, WITHOUT_PACKAGE + scripts[0], *scripts[1:]
    )
    assert "trust_remote_code=True" in advice
    np.testing.assert_allclose(by_name, twin, atol=1e-6)
    np.testing.assert_allclose(plain, twin, atol=1e-6)
    np.testing.assert_allclose(alone, distilled, atol=1e-6)
    # Private is private.
    with pytest.raises(OSError, match="org/jtcse-bert"):
        SentenceTransformer(
            "org/jtcse-bert", token=hub.stranger_token, cache_folder=str(tmp_path / "stranger")
        )


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def train(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    return status, capsys.readouterr().err


@pytest.mark.usefixtures("impatient", "unrehearsed")
def test_a_failed_push_is_repeated_without_training(
    hub, recipe_file, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("HF_TOKEN", hub.write_token)
    hub.fail("POST", "/api/models/org/jtcse-d-bert/commit/*", status=503, times=20)
    status, told = train(capsys, recipe_file)
    assert status == 1
    folder = tmp_path / "run"
    assert (
        f"the model is safe in {folder / 'distilled'}: st-push {folder / 'distilled'} "
        "org/jtcse-d-bert" in told
    )
    trained = {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
    hub.heal()
    assert train(capsys, recipe_file, "--resume")[0] == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")} == trained
    assert {name: len(found.commits) for name, found in hub.repositories.items()} == {
        "org/jtcse-bert": 2,
        "org/jtcse-d-bert": 2,
    }


@pytest.mark.usefixtures("impatient", "unrehearsed")
def test_asked_on_the_command_line_the_last_stage_goes_under_the_recipes_name(
    hub, recipe_file, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("HF_TOKEN", hub.write_token)
    content = json.loads(recipe_file.read_text())
    del content["push"]
    recipe_file.write_text(json.dumps(content))
    assert train(capsys, recipe_file)[0] == 0 and not hub.repositories
    assert train(capsys, recipe_file, "--resume", "--push")[0] == 0
    (name, repository), *others = hub.repositories.items()
    assert (name, repository.private, others) == ("tester/jtcse-tiny", True, [])
    pushed = repository.files()["model.safetensors"]
    assert pushed == (tmp_path / "run" / "distilled" / "model.safetensors").read_bytes()


def test_what_cannot_be_pushed_is_told_before_the_training(
    hub, recipe_file, tmp_path, capsys, monkeypatch
):
    status, told = train(capsys, recipe_file)
    assert (status, told) == (
        2,
        "There is no token for the Hub; log in with `hf auth login`, or set HF_TOKEN.\n",
    )
    monkeypatch.setenv("HF_TOKEN", hub.write_token)
    status, told = train(capsys, recipe_file, "--set", "push.repos.joint=org/has space")
    assert status == 2 and "'org/has space' cannot name a repository" in told
    status, told = train(capsys, recipe_file, "--set", "push.repos.joined=org/x")
    assert status == 2 and "joined" in told and "Did you mean 'joint'?" in told
    alone = (
        "--set",
        "stages.distilled.loss={type: SimCSELoss}",
        "--set",
        "stages.distilled.teachers=[]",
    )
    settings = ("--set", "push.repos={joint: org/x}", "--stage", "distilled", *alone)
    status, told = train(capsys, recipe_file, *settings)
    assert status == 2 and "The stages to push (joint) are neither chosen nor finished" in told
    status, told = train(capsys, recipe_file, "--set", "seeds=1..2")
    assert status == 2 and "trains several models per stage" in told
    assert not (tmp_path / "run").exists() and not hub.repositories
