"""The kinds of stages: assembled ensembles, students of every shape, training heads, round trips."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from conftest import make_sentences, save_encoder, save_translator
from datasets import Dataset
from processes import run_two, start
from sentence_transformers import SentenceTransformer
from test_run import results, train, weights

from st_jtcse.cli.train import main
from st_jtcse.ownership import LIST, claim

TEXTS = make_sentences(6, seed=9)
ENCODER = {
    "name": "encoder",
    "model": {"base": "./a", "pooling": "cls"},
    "loss": {"type": "SimCSELoss"},
}
TWIN = {"name": "twin", "model": {"towers": ["./a", "./b"], "pooling": "cls"}, "loss": None}


@pytest.fixture
def project(tmp_path):
    """Two encoders, text and pairs; `write` makes the recipe of given stages."""
    save_encoder(tmp_path / "a", 1)
    save_encoder(tmp_path / "b", 2)
    (tmp_path / "text.txt").write_text("\n".join(make_sentences(40)) + "\n")
    left, right = make_sentences(12, seed=5), make_sentences(12, seed=6)
    lines = [
        {"sentence1": a, "sentence2": b, "score": i % 6}
        for i, (a, b) in enumerate(zip(left, right))
    ]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def write(project, *stages, **args):
    recipe = {
        "name": "tiny",
        "output_dir": str(project / "run"),
        "cache_dir": str(project / "cache"),
        "data": {"train": "text.txt"},
        "evaluate": {"dev": "dev.jsonl"},
        "args": {
            "max_steps": 4,
            "per_device_train_batch_size": 8,
            "learning_rate": 1e-3,
            "eval_strategy": "steps",
            "eval_steps": 2,
            "logging_steps": 1,
            "use_cpu": True,
            "disable_tqdm": True,
            **args,
        },
        "stages": list(stages),
    }
    (project / "recipe.yaml").write_text(json.dumps(recipe))


def load(project, name):
    return SentenceTransformer(str(project / "run" / name), device="cpu")


def student(**model):
    return {
        "name": "student",
        "model": model,
        "teachers": [{"model": "stage:twin"}],
        "loss": {"type": "MSELoss"},
    }


@pytest.mark.usefixtures("unrehearsed")
def test_an_assembled_stage_is_the_sum_of_its_members(project, capsys):
    ensemble = {
        "name": "uc",
        "model": {
            "members": [
                {"model": "stage:twin", "weight": 0.3},
                {"model": "stage:encoder", "weight": 0.7},
            ]
        },
        "loss": None,
    }
    write(
        project,
        ENCODER,
        TWIN,
        ensemble,
        student(base="./a", pooling="cls") | {"teachers": [{"model": "stage:uc"}]},
    )
    assert train(project, "--dry-run") == 0
    assert "- (assembled)" in capsys.readouterr().out
    assert train(project) == 0
    twin, encoder, uc = (load(project, name).encode(TEXTS) for name in ("twin", "encoder", "uc"))
    np.testing.assert_allclose(uc, 0.3 * twin + 0.7 * encoder, atol=1e-5)
    records = {record["name"]: record for record in results(project)["stages"]}
    assert records["uc"]["steps"] == 0 and records["uc"]["loss"] is None
    assert records["uc"]["spearman"] == records["uc"]["spearman_start"]
    assert records["uc"]["gmac"] == pytest.approx(3 * records["encoder"]["gmac"], abs=1e-4)
    assert records["student"]["steps"] == 4


@pytest.mark.usefixtures("unrehearsed")
def test_gmac_counts_the_products_of_an_encoder(project):
    save_encoder(project / "a", 1, max_position_embeddings=80)
    write(project, ENCODER | {"model": ENCODER["model"] | {"max_seq_length": 80}})
    assert train(project) == 0
    tokens, hidden, inner, layers = 64, 32, 48, 4
    projections = tokens * (4 * hidden * hidden + 2 * hidden * inner)
    attention = 2 * tokens * tokens * hidden
    pooler = hidden * hidden
    expected = (layers * (projections + attention) + pooler) / 1e9
    assert results(project)["stages"][0]["gmac"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.usefixtures("unrehearsed")
def test_a_student_takes_layers_of_a_tower(project):
    write(project, TWIN, student(base="stage:twin", tower=2, layers=[1, 3]), learning_rate=0.0)
    assert train(project) == 0
    model = load(project, "student")[0].model
    assert model.config.model_type == "bert" and model.config.num_hidden_layers == 2
    tower = load(project, "twin")[0].model.towers[1]
    for own, given in ((0, 1), (1, 3)):
        torch.testing.assert_close(
            model.encoder.layer[own].state_dict(),
            tower.encoder.layer[given].state_dict(),
            rtol=0,
            atol=0,
        )
    assert [module.__class__.__module__.split(".")[0] for module in load(project, "student")] == [
        "sentence_transformers",
        "sentence_transformers",
    ]


@pytest.mark.usefixtures("unrehearsed")
def test_a_fresh_student_of_another_size_learns_through_a_projection(project):
    narrow = student(base="stage:twin", tower=1, fresh={"num_hidden_layers": 2, "hidden_size": 16})
    narrow["loss"] = {"type": "EmbedDistillLoss", "distance_metric": "mse", "projection_dim": 32}
    write(project, TWIN, narrow, max_steps=40, eval_steps=20)
    assert train(project, "--dry-run") == 0
    assert train(project) == 0
    assert load(project, "student").encode(TEXTS).shape == (6, 16)
    losses = [
        float(entry["loss"]) for entry in results(project)["stages"][1]["log"] if "loss" in entry
    ]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])


@pytest.mark.usefixtures("unrehearsed")
def test_a_killed_distillation_resumes_with_its_projection(project):
    narrow = student(base="stage:twin", tower=1, fresh={"hidden_size": 16})
    narrow["loss"] = {"type": "EmbedDistillLoss", "distance_metric": "mse", "projection_dim": 32}
    write(project, TWIN, narrow, max_steps=20)
    assert train(project, "--output-dir", str(project / "straight")) == 0
    process = start(train, project)
    deadline = time.monotonic() + 240
    while not list((project / "run" / "student").glob("checkpoint-*/loss.safetensors")):
        assert process.is_alive() and time.monotonic() < deadline, (
            "the run ended before it could be killed"
        )
        time.sleep(0.01)
    process.kill()
    process.join()
    assert not (project / "run" / "student" / "modules.json").exists()
    assert train(project, "--resume") == 0
    assert weights(project) == weights(project, "straight")


@pytest.mark.usefixtures("unrehearsed")
def test_first_last_pooling_is_the_mean_of_two_layers_tokens(project):
    write(
        project,
        {
            "name": "pooled",
            "model": {"base": "./a", "pooling": "first_last"},
            "loss": {"type": "SimCSELoss"},
        },
    )
    assert train(project) == 0
    model = load(project, "pooled")
    features = model.preprocess(TEXTS)
    hidden = model[0].model(features["input_ids"], features["attention_mask"]).hidden_states
    mask = features["attention_mask"].unsqueeze(-1)
    expected = ((hidden[1] + hidden[-1]) / 2 * mask).sum(1) / mask.sum(1)
    np.testing.assert_allclose(model.encode(TEXTS), expected.detach().numpy(), atol=1e-6)
    assert model[1].layer_weights.tolist() == [1, 0, 0, 1]
    assert {type(module).__module__.split(".")[0] for module in model} == {"sentence_transformers"}


@pytest.mark.usefixtures("unrehearsed")
def test_a_stage_goes_on_with_the_attention_that_an_earlier_one_learned(project):
    pooled = {
        "name": "pooled",
        "model": {"base": "./a", "pooling": "attention"},
        "loss": {"type": "SimCSELoss"},
    }
    again = {
        "name": "again",
        "model": {"base": "stage:pooled", "pooling": "attention"},
        "loss": None,
    }
    write(project, pooled, again)
    # Whatever dev says of it.
    assert train(project, "--set", "args.eval_strategy=no") == 0
    models = [
        SentenceTransformer(str(project / "run" / name), trust_remote_code=True)
        for name in ("pooled", "again")
    ]
    assert models[0][1].context.weight.abs().max() > 0
    np.testing.assert_array_equal(models[0].encode(TEXTS), models[1].encode(TEXTS))


@pytest.mark.usefixtures("unrehearsed")
def test_a_stage_cut_off_while_it_took_its_place_is_not_trained_again(project):
    write(project, ENCODER)
    assert train(project) == 0
    final, new, old = (
        project / "run" / name for name in ("encoder", ".encoder.new", ".encoder.old")
    )
    for hidden in (new, old):
        claim(hidden)
    final.rename(new)
    old.mkdir()
    before = (new / "model.safetensors").stat().st_mtime_ns
    assert train(project, "--resume") == 0
    assert (final / "model.safetensors").stat().st_mtime_ns == before and not old.exists()


@pytest.mark.usefixtures("unrehearsed")
def test_the_training_head_is_dropped_unless_it_is_kept(project):
    with_head = {
        "name": "headed",
        "model": {"base": "./a", "pooling": "cls", "training_head": True},
        "loss": {"type": "SimCSELoss"},
    }
    kept = with_head | {"name": "kept", "model": with_head["model"] | {"training_head": "kept"}}
    write(project, with_head, ENCODER, kept)
    assert train(project) == 0
    model = load(project, "headed")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling"]
    encoder, pooling, head = load(project, "kept")
    embedding = pooling(encoder(encoder.preprocess(TEXTS)))["sentence_embedding"]
    expected = torch.tanh(embedding @ head.linear.weight.T + head.linear.bias).detach()
    np.testing.assert_allclose(load(project, "kept").encode(TEXTS), expected, atol=1e-6)
    # The head took part: the same start, data and steps without it give other weights.
    assert weights(project)["headed"].values() != weights(project)["encoder"].values()
    for record in (results(project)["stages"][0], results(project)["stages"][2]):
        best = max(
            entry["eval_dev_spearman_cosine"]
            for entry in record["log"]
            if "eval_dev_spearman_cosine" in entry
        )
        assert record["spearman"]["dev"] == pytest.approx(100 * best, abs=1e-3)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (
            student(base="./a", pooling="cls", fresh={"hidden_size": 16}),
            "the teachers' embeddings have 32 components, the student's 16",
        ),
        (
            student(base="./a", pooling="cls")
            | {"loss": {"type": "EmbedDistillLoss", "projection_dim": 20}},
            "have 32 components, loss.projection_dim is 20; set it to 32.",
        ),
        (
            student(base="./a", pooling="cls", tower=1),
            "'tower' needs a twin as 'base', found a bert model; remove 'tower'.",
        ),
        (
            student(base="./a", pooling="cls", fresh={"hiden_size": 8}),
            "'fresh' changes hiden_size, which the configuration of",
        ),
    ],
)
def test_a_student_that_does_not_fit_is_told(project, capsys, stage, message):
    write(project, TWIN, stage)
    assert train(project) == 2
    assert message in capsys.readouterr().err
    assert (
        not list((project / "cache").glob("*"))
        and not (project / "run" / "student" / "modules.json").exists()
    )


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (
            ENCODER | {"model": {"members": [{"model": "./a", "pooling": "cls"}]}},
            "expected 'loss: null' beside 'members', found a loss",
        ),
        (TWIN | {"teachers": [{"model": "./a"}]}, "expected a loss beside 'teachers', found null"),
        (TWIN | {"augment": {"pivots": ["fr"]}}, "expected a loss beside 'augment', found null"),
        (
            ENCODER | {"model": {"base": "./a", "layers": [0], "fresh": {"hidden_size": 8}}},
            "which keeps weights",
        ),
        (
            ENCODER | {"model": {"towers": ["./a", "./b"], "tower": 1}},
            "expected no 'tower' beside 'towers'",
        ),
    ],
)
def test_stages_that_make_no_sense_are_refused(project, capsys, stage, message):
    write(project, stage)
    assert main([str(project / "recipe.yaml")]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("unrehearsed")
def test_labels_are_taken_from_the_cache_of_an_earlier_run(project):
    write(project, TWIN, student(base="./a", pooling="cls"))
    assert train(project) == 0
    (cached,) = (project / "cache").iterdir()
    stamp = cached.stat().st_mtime_ns
    assert train(project, "--output-dir", str(project / "again")) == 0
    assert [path.stat().st_mtime_ns for path in (project / "cache").iterdir()] == [stamp]
    assert weights(project, "again") == weights(project)
    labels = np.array(Dataset.from_file(str(cached))["label"][:], dtype=np.float32)
    texts = (project / "text.txt").read_text().splitlines()
    np.testing.assert_allclose(labels, load(project, "twin").encode(texts), rtol=2**-11, atol=1e-5)


@pytest.mark.usefixtures("unrehearsed")
def test_round_trips_replace_the_sentences_or_are_their_second_view(project):
    save_translator(project / "mt", 0)
    pivots = [{"name": "xx", "forward": "./mt", "back": "./mt"}]
    trip = {"augment": {"pivots": pivots, "max_length": 12}}
    pair = {
        "augment": trip["augment"] | {"mode": "pair"},
        "loss": {"type": "MultipleNegativesRankingLoss"},
    }
    add = {"augment": trip["augment"] | {"mode": "add"}, "views": "delete"}
    write(
        project,
        ENCODER,
        ENCODER | trip | {"name": "replaced"},
        ENCODER | pair | {"name": "paired"},
        ENCODER | add | {"name": "expanded"},
    )
    assert train(project, "--dry-run") == 0
    assert train(project) == 0
    plain, replaced, paired, expanded = results(project)["stages"]
    assert expanded["sentences"] == 40 + replaced["sentences"]
    assert "round_trip" not in plain
    assert (
        replaced["round_trip"] == paired["round_trip"]
        and replaced["round_trip"]["xx"]["sentences"] == 40
    )
    assert (
        replaced["sentences"] == paired["sentences"] == 40 - replaced["round_trip"]["xx"]["empty"]
    )
    assert len(list((project / "cache").iterdir())) == 1
    assert (
        len({tuple(stage["weights_sha256"].values()) for stage in (plain, replaced, paired)}) == 3
    )


def test_two_processes_train_as_one_run(project):
    gathering = {"type": "SimCSELoss", "gather_across_devices": True}
    write(project, ENCODER | {"loss": gathering}, TWIN, student(base="./a", pooling="cls"))
    # As a user starts them.
    command = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    worker = ["-m", "st_jtcse.cli.train", str(project / "recipe.yaml")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command, *worker],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = results(project)
    assert found["finished"] and [stage["steps"] for stage in found["stages"]] == [4, 0, 4]
    assert done.stdout.count("Spearman x 100") == 1
    assert load(project, "student").encode(TEXTS).shape == (6, 32)
    assert [path.name for path in (project / "run").rglob("*") if path.name[0] == "."] == [LIST]


def test_two_processes_run_a_sweep(project):
    write(project, ENCODER)
    recipe = json.loads((project / "recipe.yaml").read_text())
    (project / "recipe.yaml").write_text(json.dumps(recipe | {"seeds": [1, 2]}))
    run_two(train, project, folder=project)
    told = json.loads((project / "run" / "sweep.json").read_text())
    assert [run["seed"] for run in told["runs"]] == [1, 2]


def test_ls_rns_learns_from_a_scorer_and_judged_pairs(project, capsys):
    sentences = make_sentences(40)
    pairs = itertools.combinations(dict.fromkeys(sentences), 2)
    lines = [{"sentence1": a, "sentence2": b, "score": len(a) % 7 / 7} for a, b in pairs]
    (project / "judged.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    stage = ENCODER | {
        "loss": {"type": "LSRNSLoss", "rank_loss": "cosent"},
        "teachers": [{"model": "./b", "pooling": "mean"}],
    }
    write(project, stage | {"pair_scores": "judged.jsonl"})
    assert train(project) == 0
    judged = (project / "run" / stage["name"] / "model.safetensors").read_bytes()
    record = results(project)["stages"][0]
    assert set(record["data_sha256"]) == {"train", "dev", "pair_scores"}
    assert {"contrastive", "rank", "smoothing"} <= record["log"][0].keys()
    shutil.rmtree(project / "run")
    write(project, stage)
    assert train(project) == 0
    assert (project / "run" / stage["name"] / "model.safetensors").read_bytes() != judged
    # The judged pairs are of a loss that takes them, and of these sentences.
    shutil.rmtree(project / "run")
    capsys.readouterr()
    write(project, ENCODER | {"pair_scores": "judged.jsonl"})
    assert train(project) == 2
    assert "expected LSRNSLoss beside 'pair_scores', found 'SimCSELoss'" in capsys.readouterr().err
    write(project, stage | {"pair_scores": "judged.jsonl"}, prompts="query: ")
    assert train(project) == 2
    assert "found 'prompts' in args before each" in capsys.readouterr().err
    (project / "judged.jsonl").write_text(
        '{"sentence1": "no such sentence", "sentence2": "x", "score": 1}\n'
    )
    write(project, stage | {"pair_scores": "judged.jsonl"})
    assert train(project) == 2
    assert (
        "judged.jsonl:1: 'sentence1' is not a sentence of the training data"
        in capsys.readouterr().err
    )


def test_a_batch_of_one_has_nothing_to_compare(project, capsys):
    write(project, ENCODER, per_device_train_batch_size=1)
    assert train(project) == 2
    assert (
        "SimCSELoss compares the sentences of a batch, found batches of 1; raise"
        in capsys.readouterr().err
    )
    assert not (project / "run").exists()
