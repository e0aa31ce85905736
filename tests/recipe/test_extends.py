"""A recipe laid over another: what is merged, what is replaced, and where messages say that a value
stands.
"""

import re
from pathlib import Path

import pytest
import yaml

from st_jtcse import bundled
from st_jtcse.errors import UserError
from st_jtcse.recipe.extends import load
from st_jtcse.recipe.load import load_recipe, resolved_yaml

BASE = """\
name: base
description: The base.
method: JTCSE
needs: sentences
seed: 7
output_dir: out/base
push: {repos: {joint: org/base}}
model:
  base: ./encoder
  pooling: cls
  max_seq_length: 64
data:
  train: [{file: text/a.txt, limit: 9}, b.txt]
evaluate:
  dev: {file: dev.csv, columns: [a, b, score]}
  test: {one: one.csv, two: two.csv}
args:
  max_steps: 3
  lr_scheduler_kwargs: {num_cycles: 2, power: 1}
seeds: 1..3
stages:
  - name: first
    loss: {type: SimCSELoss, temperature: 0.1}
    args: {learning_rate: 1e-5}
  - name: joint
    reported_as: JTCSE
    model: {towers: ["stage:first", ./other], cross_attention_every: 3, dropout: 0.1}
    loss: {type: JTCSELoss, ictm_weight: 0.5}
  - name: student
    teachers: [{model: "stage:joint", weight: 2}]
    loss: {type: MSELoss}
"""


DOCS = Path(__file__).parents[2] / "docs" / "recipes.md"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes recipes into folders of their own; `base` is the one bundled recipe, the current
    folder another one.
    """
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(bundled, "__file__", str(tmp_path / "st_jtcse" / "bundled.py"))

    def write(text, name="mine/r.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    write(BASE, "recipes/base.yaml")
    return write


def tree(write, text):
    return load(Path(write(f"extends: base\nname: mine\n{text}"))).data


def resolved(write, text, *overrides):
    return load_recipe(write(f"extends: base\nname: mine\n{text}"), overrides).recipe


def faults(path, *overrides):
    with pytest.raises(UserError) as caught:
        load_recipe(path, overrides)
    return list(caught.value.faults)


def test_a_recipe_takes_over_all_but_who_it_is(write):
    recipe = resolved(write, "")
    base = load_recipe("base").recipe
    own = {"name": "mine", "description": "", "output_dir": "runs/mine", "push": None}
    assert recipe == base.model_copy(update=own)
    assert recipe.seed == 7 and recipe.method == "JTCSE" and len(recipe.stages) == 3


def test_mappings_are_laid_over_each_other_deeply(write):
    data = tree(write, "args: {eval_strategy: steps, lr_scheduler_kwargs: {power: 2}}\nseed: 1\n")
    assert data["args"] == {
        "max_steps": 3,
        "lr_scheduler_kwargs": {"num_cycles": 2, "power": 2},
        "eval_strategy": "steps",
    }
    assert data["seed"] == 1
    assert "extends" not in data


@pytest.mark.parametrize(
    ("text", "loc", "value"),
    [
        ("data: {train: {file: c.txt}}", ("data",), {"train": {"file": "c.txt"}}),
        ("evaluate: {dev: {file: x.csv}}", ("evaluate", "dev"), {"file": "x.csv"}),
        (
            "evaluate: {dev: {file: x.csv}}",
            ("evaluate", "test"),
            {"one": "one.csv", "two": "two.csv"},
        ),
        ("evaluate: {test: {three: three.csv}}", ("evaluate", "test"), {"three": "three.csv"}),
        ("seeds: [4]", ("seeds",), [4]),
        (
            "stages: [{name: student, teachers: [{model: x}]}]",
            ("stages", 2, "teachers"),
            [{"model": "x"}],
        ),
    ],
)
def test_lists_and_sources_are_replaced_whole(write, text, loc, value):
    node = tree(write, text)
    for part in loc:
        node = node[part]
    assert node == value


def test_a_sweep_is_replaced_whole(write):
    middle = write(
        "extends: base\nname: middle\nsweep: {args.max_steps: [1, 2], seed: [1]}\n",
        "mine/middle.yaml",
    )
    assert load(Path(write(f"extends: {middle}\nname: mine\nsweep: {{seed: [3]}}\n"))).data[
        "sweep"
    ] == {"seed": [3]}


def test_stages_are_merged_by_name_and_new_ones_come_last(write):
    data = tree(
        write,
        "stages:\n"
        "  - {name: new, loss: {type: SimCSELoss}}\n"
        "  - {name: joint, loss: {ictm_weight: 1.0}, reported_as: null}\n",
    )
    assert [stage["name"] for stage in data["stages"]] == ["first", "joint", "student", "new"]
    assert data["stages"][1] == {
        "name": "joint",
        "reported_as": None,
        "model": {"towers": ["stage:first", "./other"], "cross_attention_every": 3, "dropout": 0.1},
        "loss": {"type": "JTCSELoss", "ictm_weight": 1.0},
    }


def test_a_stage_is_dropped_and_may_be_written_anew(write):
    data = tree(
        write,
        "stages:\n"
        "  - {name: joint, drop: true}\n"
        "  - {name: student, drop: true}\n"
        "  - {name: second, loss: {type: SimCSELoss}}\n"
        "  - {name: student, loss: {type: SimCSELoss}}\n",
    )
    assert [stage["name"] for stage in data["stages"]] == ["first", "second", "student"]
    assert data["stages"][2] == {"name": "student", "loss": {"type": "SimCSELoss"}}


def test_a_drop_of_nothing_is_refused(write):
    path = write("extends: base\nname: mine\nstages:\n  - {name: frist, drop: true}\n")
    assert faults(path) == [
        f"{path}:4 stages[0].name: expected a stage of the recipe that this one extends, found "
        "'frist'. "
        "Did you mean 'first'?"
    ]


def test_a_stage_written_twice_is_refused(write):
    path = write(
        "extends: base\nname: mine\nstages:\n  - name: first\n  - {name: first, loss: {type: "
        "SimCSELoss}}\n"
    )
    assert (
        f"{path}:5 stages[3].name: expected a name of its own, found 'first', taken by stages[0]. "
        in ("\n".join(faults(path)))
    )


def test_another_kind_of_model_drops_what_does_not_go_with_it(write):
    data = tree(write, "stages:\n  - {name: joint, model: {base: x}}\n")
    assert data["stages"][1]["model"] == {"base": "x", "dropout": 0.1}


def test_another_model_inherits_neither_revision_nor_trust(write):
    text = BASE.replace(
        "base: ./encoder", "base: org/one\n  revision: abc\n  trust_remote_code: true"
    )
    write(text, "recipes/base.yaml")
    assert tree(write, "model: {base: org/two}")["model"] == {
        "base": "org/two",
        "pooling": "cls",
        "max_seq_length": 64,
    }
    assert resolved(write, "").stages[0].model.revision == "abc"
    assert resolved(write, "").stages[1].model.revision is None


def test_another_default_model_keeps_the_defaults_of_other_kinds(write):
    write(BASE.replace("pooling: cls", "cross_residual: local"), "recipes/base.yaml")
    recipe = resolved(write, "model: {base: x, pooling: mean}")
    assert (recipe.stages[0].model.base, recipe.stages[0].model.pooling) == ("x", "mean")
    assert recipe.stages[1].model.cross_residual == "local"


def test_sentences_replace_pairs_and_what_goes_with_them(write):
    write(
        BASE.replace("train: [{file", "mapping: {a: 1}\n  labels: classes\n  pairs: [{file"),
        "recipes/base.yaml",
    )
    assert tree(write, "data: {train: c.txt}")["data"] == {"train": "c.txt"}
    assert tree(write, "data: {pairs: c.csv}")["data"] == {
        "mapping": {"a": 1},
        "labels": "classes",
        "pairs": "c.csv",
    }


def test_another_loss_replaces_the_block(write):
    same, other, none = (
        tree(write, f"stages: [{{name: first, loss: {loss}}}]")["stages"][0]["loss"]
        for loss in ("{type: SimCSELoss}", "{type: InfoNCE, scale: 1}", "null")
    )
    assert same == {"type": "SimCSELoss", "temperature": 0.1}
    assert other == {"type": "InfoNCE", "scale": 1}
    assert none is None


def test_null_replaces_a_value_and_removes_a_list_or_mapping(write):
    data = tree(
        write,
        "evaluate: null\nseeds: null\nargs: {max_steps: null}\nstages:\n"
        "  - {name: joint, model: {cross_attention_every: null}}\n  - {name: student, teachers: "
        "null}\n",
    )
    assert "evaluate" not in data and "teachers" not in data["stages"][2]
    assert data["seeds"] is None and data["args"]["max_steps"] is None
    assert data["stages"][1]["model"]["cross_attention_every"] is None


def test_a_base_may_extend_another_and_files_start_where_they_are_written(write, tmp_path):
    write(
        "extends: base\nname: b\ndata: {train: b.txt}\nevaluate: {test: {b: b.csv}}\n", "lib/b.yaml"
    )
    recipe = load_recipe(
        write("extends: ../lib/b.yaml\nname: mine\nevaluate: {test: {c: c.csv}}\n")
    ).recipe
    assert recipe.data.train[0].file == f"{tmp_path}/lib/b.txt"
    assert recipe.evaluate.dev.file == f"{tmp_path}/recipes/dev.csv"
    assert recipe.evaluate.test["c"].file == f"{tmp_path}/mine/c.csv"
    assert recipe.stages[0].model.base == f"{tmp_path}/recipes/encoder"
    assert recipe.stages[1].model.towers == ["stage:first", f"{tmp_path}/recipes/other"]


def test_files_of_a_sweep_start_where_the_sweep_is_written(write, tmp_path):
    point = {"data.train": "c.txt"}
    write(f"{BASE}sweep: {{data.train: [c.txt]}}\n", "recipes/base.yaml")
    path = write("extends: base\nname: mine\n")
    assert load_recipe(path, point=point).recipe.data.train[0].file == f"{tmp_path}/recipes/c.txt"
    path = write("extends: base\nname: mine\nsweep: {data.train: [c.txt]}\n")
    assert load_recipe(path, point=point).recipe.data.train[0].file == f"{tmp_path}/mine/c.txt"


def test_overrides_are_laid_over_what_is_inherited(write, tmp_path):
    overrides = [
        "stages.first.args.learning_rate=2e-5",
        "data.train=c.txt",
        "model.pooling=mean",
        "model.base=./m",
    ]
    recipe = resolved(write, "", *overrides)
    assert recipe.stages[0].args == {"learning_rate": 2e-5}
    assert recipe.data.train[0].file == f"{tmp_path}/here/c.txt"
    assert (recipe.stages[0].model.pooling, recipe.stages[0].model.base) == (
        "mean",
        f"{tmp_path}/here/m",
    )


def test_a_fault_in_an_inherited_value_names_the_base(write, tmp_path):
    path = write("extends: base\nname: mine\nstages:\n  - {name: joint, loss: {ictm_weight: -1}}\n")

    def places(text, *overrides):
        write(text, "recipes/base.yaml")
        return [fault.partition(": ")[0] for fault in faults(path, *overrides)]

    misspelt = BASE.replace("pooling: cls", "pooling: clss")
    assert places(misspelt, "seed=x") == ["base.yaml:10 model.pooling", "--set seed"]
    text = BASE.replace("temperature: 0.1", "temperature: -1")
    assert places(text.replace("max_steps: 3", "max_stepps: 3")) == [
        f"{path}:4 stages[1].loss.ictm_weight",
        "base.yaml:18 args.max_stepps",
        "base.yaml:23 stages[0].loss.temperature",
    ]


def test_a_base_file_is_called_as_seen_from_the_recipe(write, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    write("extends: base\nname: b\nseed: x\n", "lib/b.yaml")
    write("extends: ../lib/b.yaml\nname: mine\n")
    assert faults("mine/r.yaml")[0].startswith("lib/b.yaml:3 seed: expected a whole number")


def test_a_stage_without_what_it_needs_is_told_where_it_was_changed(write):
    path = write("extends: base\nname: mine\nstages:\n  - name: student\n    teachers: null\n")
    assert faults(path) == [
        f"{path}:4 stages[2].teachers: expected the models that MSELoss learns from, found none. "
        "Add 'teachers: [{model: NAME}]'."
    ]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            "bsae",
            "expected the name of a bundled recipe or a file (.yaml), found 'bsae'. Did you mean "
            "'base'?",
        ),
        (
            "zzzz",
            "expected the name of a bundled recipe or a file (.yaml), found 'zzzz'. Use one of: "
            "base.",
        ),
        ("x.yaml", "expected a recipe file, found none called 'x.yaml'. Correct the path."),
        ("../mine/", "expected a recipe file, found none called '../mine/'. Correct the path."),
        (
            "5",
            "expected the name of a bundled recipe or a file, found 5. Name one, or remove "
            "'extends'.",
        ),
        (
            "null",
            "expected the name of a bundled recipe or a file, found null. Name one, or remove "
            "'extends'.",
        ),
        (
            "[base]",
            "expected the name of a bundled recipe or a file, found a list of 1. Name one, or "
            "remove 'extends'.",
        ),
        (
            "r.yaml",
            "expected another recipe to lay this over, found itself. Name another, or remove "
            "'extends'.",
        ),
    ],
)
def test_extending_no_recipe_is_refused(write, value, sentence):
    path = write(f"name: mine\nextends: {value}\n")
    assert faults(path) == [f"{path}:2 extends: {sentence}"]


def test_a_circle_is_told_as_a_chain(write, tmp_path, monkeypatch):
    write("extends: ./b.yaml\nname: a\n", "mine/a.yaml")
    write("extends: c.yml\nname: b\n", "mine/b.yaml")
    write("name: c\nextends: base\n", "mine/c.yml")
    write(f"extends: {tmp_path}/mine/b.yaml\n{BASE}", "recipes/base.yaml")
    monkeypatch.chdir(tmp_path / "mine")
    assert faults("a.yaml") == [
        "base.yaml:1 extends: expected another recipe to lay this over, found a circle: b.yaml -> "
        "c.yml -> base -> "
        "b.yaml. Remove one 'extends' of it."
    ]


def test_a_base_that_is_no_yaml_is_told_by_its_own_name(write):
    write("name: [", "mine/b.yaml")
    assert "b.yaml:1: expected valid YAML" in faults(write("extends: b.yaml\nname: mine\n"))[0]


def test_extends_is_no_option_and_a_near_miss_is_told(write):
    path = write("extends: base\nname: mine\n")
    assert faults(path, "extends=base")[0].startswith(
        "--set extends: expected nothing here, found 'base'."
    )
    told = f"{path}:1 extend: expected a known key, found 'extend'. Did you mean 'extends'?"
    assert told in faults(write("extend: base\nname: mine\n"))


def test_the_saved_recipe_is_whole(write, tmp_path):
    recipe = resolved(write, "stages: [{name: joint, reported_as: null}]")
    text = resolved_yaml(recipe)
    data = yaml.safe_load(text)
    assert "extends" not in data and "model" not in data
    assert data["stages"][0]["model"]["base"] == f"{tmp_path}/recipes/encoder"
    assert load_recipe(write(text, "mine/saved.yaml")).recipe == recipe


DEFAULTS = """\
name: demo
data: {train: a.txt}
model: {base: ./encoder, revision: abc, pooling: mean, max_seq_length: 32, dropout: 0.2, cross_attention_every: 4}
stages:
  - {name: plain, loss: {type: SimCSELoss}}
  - {name: own, model: {base: x, pooling: cls, max_seq_length: null}, loss: {type: SimCSELoss}}
  - {name: same, model: {training_head: true}, loss: {type: SimCSELoss}}
  - {name: twin, model: {towers: ["stage:plain", "stage:own"]}, loss: {type: JTCSELoss}}
  - {name: sum, model: {members: [{model: "stage:twin"}]}, loss: null}
"""


def test_model_defaults_are_laid_where_they_go_with_the_kind_of_model(write, tmp_path):
    loaded = load_recipe(write(DEFAULTS)).recipe
    plain, own, same, twin, members = (stage.model for stage in loaded.stages)
    assert (plain.base, plain.revision, plain.pooling) == (
        f"{tmp_path}/mine/encoder",
        "abc",
        "mean",
    )
    assert (plain.max_seq_length, plain.dropout) == (32, 0.2)
    assert (own.base, own.revision, own.pooling, own.max_seq_length, own.dropout) == (
        "x",
        None,
        "cls",
        None,
        0.2,
    )
    assert same == plain.model_copy(update={"training_head": True})
    assert (twin.base, twin.cross_attention_every, twin.max_seq_length, twin.dropout) == (
        None,
        4,
        32,
        0.2,
    )
    assert (members.base, members.max_seq_length, members.dropout) == (None, 32, None)
    assert loaded.model is None


def test_a_default_adapter_is_laid_where_something_is_trained(write):
    text = (
        "name: demo\ndata: {train: a.txt}\nmodel: {base: x, pooling: cls, lora: {r: 4}}\nstages:\n"
    )
    text += "  - {name: trained, loss: {type: SimCSELoss}}\n  - {name: assembled, loss: null}\n"
    assert [stage.model.lora for stage in load_recipe(write(text)).recipe.stages] == [
        {"r": 4},
        None,
    ]


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            "{poolin: cls}",
            "model.poolin: expected a known key, found 'poolin'. Did you mean 'pooling'?",
        ),
        ("{pooling: men}", "model.pooling: expected one of 'cls', 'lasttoken', 'max', 'mean', "),
        (
            "{towers: [a, b]}",
            "model: expected keys that stages share, found 'towers'. Move it into a stage's "
            "'model'.",
        ),
    ],
)
def test_a_fault_in_model_defaults_is_told_once(write, model, sentence):
    text = "name: demo\ndata: {train: a.txt}\nstages:\n"
    for name in ("a", "b"):
        text += (
            f"  - {{name: {name}, model: {{base: x, pooling: cls}}, loss: {{type: SimCSELoss}}}}\n"
        )
    path = write(f"{text}model: {model}\n")
    (fault,) = faults(path)
    assert fault.startswith(f"{path}:6 {sentence}")


def test_stages_without_any_model_are_told(write):
    path = write(
        "name: demo\ndata: {train: a.txt}\nmodel: {pooling: cls}\nstages:\n  - {name: a, loss: "
        "{type: SimCSELoss}}\n"
    )
    assert faults(path) == [
        f"{path}:5 stages[0].model: expected a value, found none. Add it (What the stage starts "
        "from)."
    ]


def test_the_output_folder_is_named_after_the_recipe(write):
    assert load_recipe(write(DEFAULTS)).recipe.output_dir == "runs/demo"
    assert load_recipe(write(DEFAULTS), ["name=other"]).recipe.output_dir == "runs/other"


def test_the_documented_example_loads(tmp_path):
    (example,) = re.findall(
        r"## Extending a recipe\n\n```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL
    )
    (tmp_path / "mine.yaml").write_text(example)
    recipe = load_recipe(str(tmp_path / "mine.yaml")).recipe
    assert recipe.data.train[0].file == str(tmp_path / "my.txt")
    assert [stage.name for stage in recipe.stages] == ["encoder_1", "encoder_2", "joint"]
    assert recipe.stages[2].args == {"learning_rate": 2e-5, "max_steps": 50}
