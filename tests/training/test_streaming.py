"""A stage trained on a data set that is read meanwhile, and what cannot be done with one."""

import json

import pytest
from conftest import make_sentences, save_encoder

from st_jtcse.cli.train import main
from st_jtcse.training.callbacks import TrainingTime


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An encoder and a data set of two files."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    save_encoder(tmp_path / "a", 1, num_hidden_layers=2)
    (tmp_path / "corpus").mkdir()
    for number in range(2):
        rows = "".join(json.dumps({"sentence": text}) + "\n" for text in make_sentences(20, number))
        (tmp_path / "corpus" / f"train-{number}.jsonl").write_text(rows)
    return tmp_path


def train(project, *options, data=None, args=None, **stage):
    # More than a pass of 40.
    settings = {
        "max_steps": 8,
        "per_device_train_batch_size": 8,
        "logging_steps": 1,
        "save_steps": 6,
    }
    recipe = {
        "name": "tiny",
        "output_dir": str(project / "run"),
        "data": data or {"train": {"dataset": "./corpus"}, "streaming": True},
        "args": {**settings, "learning_rate": 1e-2, "use_cpu": True, "disable_tqdm": True}
        | (args or {}),
        "stages": [
            {
                "name": "one",
                "model": {"base": "./a", "pooling": "cls"},
                "loss": {"type": "SimCSELoss"},
                **stage,
            }
        ],
    }
    (project / "recipe.yaml").write_text(json.dumps(recipe))
    return main([str(project / "recipe.yaml"), *options])


def test_a_resumed_stage_goes_on_at_the_right_row(project, monkeypatch):
    assert train(project, "--output-dir", str(project / "straight")) == 0
    step_end = TrainingTime.on_step_end

    def stop(self, args, state, control, **given):
        if state.global_step == 7:
            raise KeyboardInterrupt
        step_end(self, args, state, control, **given)

    with monkeypatch.context() as patched:
        patched.setattr(TrainingTime, "on_step_end", stop)
        assert train(project) == 130
    assert [path.name for path in (project / "run").glob("*/checkpoint-*")] == ["checkpoint-6"]
    assert train(project, "--resume") == 0
    (straight,), (resumed,) = (
        json.loads((project / folder / "results.json").read_text())["stages"]
        for folder in ("straight", "run")
    )
    assert resumed["weights_sha256"] == straight["weights_sha256"]
    assert straight["steps"] == 8 and straight["sentences"] is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"args": {"max_steps": -1, "num_train_epochs": 2}},
            "data.streaming: expected a number of steps beside 'streaming', whose end is not "
            "known, found none. Give",
        ),
        (
            {"views": "neighbour"},
            "before training for views: neighbour, found 'streaming'. Remove one.",
        ),
        (
            {"evaluate": {"dev": "unlabelled"}},
            "expected all sentences before training for dev: unlabelled, found",
        ),
        (
            {"loss": {"type": "MSELoss"}, "teachers": [{"model": "./a", "pooling": "cls"}]},
            "for teachers without 'cache: false', found 'streaming'. Remove one.",
        ),
        ({"args": {"batch_sampler": "no_duplicates"}}, "for args.batch_sampler, found 'streaming'"),
        (
            {"args": {"train_sampling_strategy": "group_by_length"}},
            "for args.train_sampling_strategy, found 'streaming'",
        ),
        (
            {"data": {"train": "a.txt", "streaming": True}},
            "a 'dataset' in 'train' beside 'streaming', found a file",
        ),
    ],
)
def test_what_needs_all_sentences_is_refused(project, capsys, changes, told):
    assert train(project, **changes) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (project / "run").exists()


def test_teachers_embed_what_streams(project):
    teachers = [{"model": "./a", "pooling": "mean", "cache": False}]
    assert train(project, args={"max_steps": 2}, loss={"type": "MSELoss"}, teachers=teachers) == 0
