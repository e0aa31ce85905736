"""A resolved recipe, written and read again, is the same recipe: by it a run folder knows its run."""

import math

import pytest

from st_jtcse import bundled
from st_jtcse.cli.train import main
from st_jtcse.recipe.load import load_recipe, resolved_yaml
from st_jtcse.recipe.yaml_source import dump, load

RECIPES = bundled.recipes()
STAGE = {
    "name": "one",
    "model": {"base": "embedded"},
    "loss": {"type": "SimCSELoss"},
}


def read_again(loaded, place):
    """What loading gives of a loaded recipe that is written to a place; both must say the same."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(resolved_yaml(loaded.recipe))
    again = load_recipe(str(place))
    assert again.recipe == loaded.recipe
    assert again.stages == loaded.stages
    assert again.keys == loaded.keys
    assert resolved_yaml(again.recipe) == place.read_text()
    return again


def written(folder, name="r.yaml", **keys):
    path = folder / name
    path.write_text(dump({"name": "demo", "data": {"train": "a.txt"}, "stages": [STAGE], **keys}))
    return str(path)


@pytest.mark.parametrize("name", RECIPES)
def test_every_bundled_recipe_is_read_again_as_it_was_written(name, tmp_path):
    loaded = load_recipe(name)
    again = read_again(loaded, tmp_path / "elsewhere" / "recipe.yaml")
    # From the folder of a run, or of --show, a sweep leads to the same runs.
    for block in (loaded.recipe.sweep or [])[-1:]:
        point = {key: values[-1] for key, values in block.items()}
        swept = load_recipe(name, (), point)
        assert load_recipe(str(again.path), (), point).recipe == swept.recipe
        read_again(swept, tmp_path / "run.yaml")


def test_changes_of_the_command_line_are_read_again_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = ["data.train=my.txt", "model=./mine", "evaluate.test.own=own.jsonl", "seeds=1..3"]
    changes += ["stages.adapted.args.max_grad_norm=.inf", "args.run_name='1e-5'"]
    again = read_again(load_recipe("adapt", changes), tmp_path / "elsewhere" / "recipe.yaml")
    adapted = again.stages[-1]
    assert adapted.evaluate.dev.unlabelled and adapted.args["max_grad_norm"] == math.inf
    assert adapted.data.train[0].file == f"{tmp_path}/my.txt"
    assert again.recipe.stages[0].model.base == f"{tmp_path}/mine"


@pytest.mark.parametrize(
    ("of_recipe", "of_stage", "kept"),
    [
        # What the stage does not say stays the recipe's.
        ({"score_range": [0, 1]}, {"labels": "classes"}, {"score_range": (0, 1), "bins": None}),
        (
            {"labels": "classes", "bins": 3},
            {"score_range": [0, 1]},
            {"labels": "classes", "bins": 3},
        ),
        # And what it says is said, a default and a null too.
        ({"score_range": [0, 1]}, {"score_range": [0, 5]}, {"score_range": (0, 5)}),
        (
            {"labels": "classes", "bins": 3},
            {"labels": "scores", "bins": None},
            {"labels": "scores", "bins": None},
        ),
    ],
)
def test_a_stage_that_changes_single_keys_of_the_data_is_read_again(
    tmp_path, of_recipe, of_stage, kept
):
    labels = {**of_recipe, **of_stage}.get("labels", "scores")
    loss = {"scores": "CoSENTLoss", "classes": "SoftmaxLoss"}[labels]
    stage = {**STAGE, "data": of_stage, "loss": {"type": loss}}
    if labels == "classes":
        stage["loss"] |= {"embedding_dimension": 8, "num_labels": 3}
    path = written(tmp_path, data={"pairs": "p.jsonl", **of_recipe}, stages=[stage])
    again = read_again(load_recipe(path), tmp_path / "again.yaml")
    (whole,) = again.stages
    assert {key: getattr(whole.data, key) for key in kept} == kept
    assert whole.data.pairs[0].file == f"{tmp_path}/p.jsonl"


def test_files_in_a_sweep_start_where_they_did(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    sweep = {
        "data.train": ["a.txt", ["b.txt", {"file": "c.txt"}], {"dataset": "org/name"}],
        "stages.one.v1.model.base": ["./m", "org/model", "embedded"],
        "stages.0.evaluate": [{"dev": "unlabelled", "test": {"file": "t.jsonl"}}],
        "evaluate.dev": ["unlabelled", "d.jsonl"],
        "model": ["../m"],
        "args.run_name": ["./kept"],
    }
    stage = {**STAGE, "name": "one.v1", "model": {}}
    path = written(tmp_path, sweep=sweep, stages=[stage], model="embedded")
    again = read_again(load_recipe(path), tmp_path / "out" / "recipe.yaml")
    assert again.recipe.sweep == [
        {
            "data.train": [
                f"{tmp_path}/a.txt",
                [f"{tmp_path}/b.txt", {"file": f"{tmp_path}/c.txt"}],
                {"dataset": "org/name"},
            ],
            "stages.one.v1.model.base": [f"{tmp_path}/m", "org/model", "embedded"],
            "stages.0.evaluate": [{"dev": "unlabelled", "test": {"file": f"{tmp_path}/t.jsonl"}}],
            "evaluate.dev": ["unlabelled", f"{tmp_path}/d.jsonl"],
            "model": [f"{tmp_path.parent}/m"],
            "args.run_name": ["./kept"],
        }
    ]
    swept = load_recipe(path, ["sweep={data.train: [x.txt]}"]).recipe.sweep
    assert swept == [{"data.train": [f"{tmp_path}/here/x.txt"]}]


def test_what_extends_a_recipe_is_read_again_without_it(tmp_path):
    path = written(
        tmp_path, extends="adapt", stages=[{"name": "distilled", "args": {"max_steps": 9}}]
    )
    again = read_again(load_recipe(path), tmp_path / "elsewhere" / "recipe.yaml")
    assert "extends" not in load(again.path).data
    assert [stage.args.get("max_steps") for stage in again.stages] == [None, None, 80, 9, None]


@pytest.mark.parametrize(
    ("dev", "told"),
    [
        ({"unlabelled": True, "split": "train"}, None),  # Its default, as files of before have it.
        ({"unlabelled": True, "split": "test"}, "expected no 'split' beside 'unlabelled'"),
        ({"unlabelled": True, "file": "a.jsonl"}, "expected no 'file' beside 'unlabelled'"),
    ],
)
def test_a_key_that_does_not_go_with_another_is_told_by_what_it_says(tmp_path, capsys, dev, told):
    path = written(tmp_path, evaluate={"dev": dev})
    if told is None:
        assert load_recipe(path).stages[0].evaluate.dev.unlabelled
    else:
        assert main([path, "--dry-run"]) == 2
        assert told in capsys.readouterr().err


def test_a_shown_recipe_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["--show", "adapt", "--set", "output_dir=out"]) == 0
    (tmp_path / "x.yaml").write_text(capsys.readouterr().out)
    assert main(["x.yaml", "--dry-run", "--stage", "start"]) == 0
    assert load_recipe("x.yaml").recipe == load_recipe("adapt", ["output_dir=out"]).recipe
