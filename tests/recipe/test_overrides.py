"""`--set KEY=VALUE`: what it means and what it refuses, as a table."""

from pathlib import Path

import pytest

from st_jtcse.recipe.overrides import apply
from st_jtcse.recipe.yaml_source import Written, grown

DATA = {
    "name": "x",
    "seed": 1,
    "data": {"train": "a.txt"},
    "args": {"learning_rate": 1e-4},
    "stages": [
        {"name": "tower", "model": {"base": "embedded"}, "loss": {"type": "SimCSELoss"}},
        {
            "name": "joint-1.5",
            "model": {"towers": ["stage:tower", "b"]},
            "loss": {"type": "JTCSELoss"},
            "args": None,
        },
    ],
}


def overridden(*texts):
    source, faults = apply(grown(DATA, Written("r.yaml", 1, Path())), texts)
    return source, faults


@pytest.mark.parametrize(
    ("text", "loc", "value"),
    [
        ("seed=2", ("seed",), 2),
        ("args.learning_rate=1e-5", ("args", "learning_rate"), 1e-5),
        ("args.max_steps=3", ("args", "max_steps"), 3),
        ("args.lr_scheduler_kwargs.num_cycles=2", ("args", "lr_scheduler_kwargs", "num_cycles"), 2),
        ("description=a=b", ("description",), "a=b"),
        ("description=no", ("description",), "no"),
        ("args.run_name=", ("args", "run_name"), None),
        ("stages.0.model.dropout=0.2", ("stages", 0, "model", "dropout"), 0.2),
        ("stages.tower.model.dropout=0.2", ("stages", 0, "model", "dropout"), 0.2),
        ("stages.joint-1.5.args.learning_rate=1e-5", ("stages", 1, "args", "learning_rate"), 1e-5),
        ("stages.1.model.towers.1=c", ("stages", 1, "model", "towers", 1), "c"),
        ("stages.1.loss.ictm_weight=1.0", ("stages", 1, "loss", "ictm_weight"), 1.0),
        ("stages.1.data.train=b.txt", ("stages", 1, "data", "train"), "b.txt"),
        ("data.train=b.txt", ("data", "train"), "b.txt"),
        ("data.train=[a.txt, {file: b.txt}]", ("data", "train"), ["a.txt", {"file": "b.txt"}]),
        ("evaluate.dev=dev.csv", ("evaluate", "dev"), "dev.csv"),
        ("evaluate.test.sick=test.csv", ("evaluate", "test", "sick"), "test.csv"),
        ("output_dir=out", ("output_dir",), "out"),
        ("stages.0={name: new}", ("stages", 0), {"name": "new"}),
    ],
)
def test_a_declared_path_is_set(text, loc, value):
    source, faults = overridden(text)
    assert faults == []
    node = source.data
    for part in loc:
        node = node[part]
    assert node == value
    assert source.place(loc) == f"--set {text.partition('=')[0]}"


def test_the_short_form_of_a_source_takes_further_keys():
    source, faults = overridden("data.train.limit=5")
    assert faults == []
    assert source.data["data"] == {"train": {"file": "a.txt", "limit": 5}}
    assert source.place(("data", "train", 0, "limit")) == "--set data.train.limit"
    assert source.place(("data", "train", 0, "file")) == "r.yaml:1 data.train.file"


def test_the_short_form_of_a_model_takes_further_keys():
    source, faults = overridden("model=./mine", "model.dropout=0.1")
    assert faults == []
    assert source.data["model"] == {"base": "./mine", "dropout": 0.1}
    assert source.place(("model", "base")) == "--set model model.base"


def test_later_overrides_win_and_see_earlier_ones():
    source, faults = overridden(
        "stages.0.name=first", "stages.first.args.max_steps=1", "stages.0.args={max_steps: 2}"
    )
    assert faults == []
    assert source.data["stages"][0]["args"] == {"max_steps": 2}
    assert (
        source.place(("stages", 0, "args", "max_steps"))
        == "--set stages.0.args stages[0].args.max_steps"
    )


def test_the_source_itself_is_left_alone():
    source = grown(DATA, Written("r.yaml", 1, Path()))
    apply(source, ["seed=2", "stages.1.args.max_steps=1"])
    assert source.data == DATA


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("seed", "--set: expected KEY=VALUE, found 'seed'. Write e.g. --set seed=1."),
        ("=1", "--set: expected KEY=VALUE, found '=1'. Write e.g. --set seed=1."),
        (
            "stages.towr.loss.type=x",
            "--set stages.towr.loss.type: expected the name or position of a stage, found 'towr'. "
            "Did you mean 'tower'?",
        ),
        (
            "stages.7.name=x",
            "--set stages.7.name: expected the name or position of a stage, found '7'. Positions: "
            "0 to 1.",
        ),
        (
            "stages.1.model.towers.2=x",
            "--set stages.1.model.towers.2: expected a position in stages[1].model.towers, found "
            "'2'. "
            "Positions: 0 to 1.",
        ),
        (
            "stages.-1.name=x",
            "--set stages.-1.name: expected the name or position of a stage, found '-1'. "
            "Positions: 0 to 1.",
        ),
        ("seed.x=1", "--set seed.x: expected keys below seed, found 1. Set it as a whole."),
        (
            "seed=[1",
            "--set seed: expected valid YAML, but expected ',' or ']', but got '<stream end>'. "
            "Quote the text.",
        ),
    ],
)
def test_a_path_that_does_not_exist_is_refused(text, sentence):
    source, faults = overridden(text)
    assert faults == [sentence]
    assert source.data == DATA


def test_all_refusals_are_told_and_the_good_ones_kept():
    source, faults = overridden("sed", "seed=5", "stages.x.name=1")
    assert [fault.split(":")[0] for fault in faults] == ["--set", "--set stages.x.name"]
    assert source.data["seed"] == 5
