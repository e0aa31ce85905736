"""A recipe is loaded whole or refused: with every fault of its keys and names at once, else with
every one against the libraries.
"""

import pytest

from st_jtcse import bundled
from st_jtcse.errors import UserError
from st_jtcse.recipe.load import load_recipe, resolved_yaml
from st_jtcse.recipe.yaml_source import load

GOOD = """\
name: demo
output_dir: runs/demo
data:
  train: text/a.txt
args:
  learning_rate: 1e-5
  per_device_train_batch_size: 64
evaluate:
  dev: {file: dev.csv, columns: [a, b, score]}
  test: {sick: /data/sick.csv}
stages:
  - name: tower
    model: {base: ./encoder, dropout: 0.1}
    loss: {type: SimCSELoss, temperature: 0.05}
    args: {learning_rate: 3e-5, eval_strategy: epoch}
  - name: joint
    model: {towers: ["stage:tower", embedded], cross_attention_every: null}
    loss: {type: JTCSELoss, ictm_weight: 1}
    data: {train: [{dataset: ns/name, split: test}, "no"]}
  - name: student
    model: {base: embedded, layers: [0, 2]}
    loss: {type: MSELoss}
    teachers: [{model: "stage:joint", weight: 2}]
    evaluate: {dev: other.csv, score_range: [0, 1]}
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a recipe into a folder of its own; the current folder is another one."""
    (tmp_path / "here").mkdir()
    (tmp_path / "recipes").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def write(text, name="r.yaml"):
        path = tmp_path / "recipes" / name
        path.write_text(text)
        return str(path)

    return write


def faults(write, text, *overrides):
    path = write(text)
    with pytest.raises(UserError) as caught:
        load_recipe(path, overrides)
    return [fault.replace(path, "r.yaml") for fault in caught.value.faults]


def test_a_good_recipe_is_loaded(write, tmp_path):
    loaded = load_recipe(write(GOOD))
    assert loaded.path.stem == "r"
    assert loaded.source.at(()).folder == tmp_path / "recipes"
    assert [stage.name for stage in loaded.recipe.stages] == ["tower", "joint", "student"]
    assert loaded.recipe.seed == 42
    assert loaded.recipe.stages[1].model.cross_attention_every is None


def test_relative_files_start_at_the_recipes_folder(write, tmp_path):
    recipe = load_recipe(write(GOOD)).recipe
    assert recipe.data.train[0].file == f"{tmp_path}/recipes/text/a.txt"
    assert recipe.evaluate.dev.file == f"{tmp_path}/recipes/dev.csv"
    assert recipe.evaluate.test["sick"].file == "/data/sick.csv"
    assert recipe.stages[0].model.base == f"{tmp_path}/recipes/encoder"
    assert [source.file for source in recipe.stages[1].data.train] == [
        None,
        f"{tmp_path}/recipes/no",
    ]


def test_models_and_datasets_that_may_be_hub_ids_are_left_alone(write):
    recipe = load_recipe(write(GOOD)).recipe
    assert recipe.stages[1].model.towers == ["stage:tower", "embedded"]
    assert recipe.stages[1].data.train[0].dataset == "ns/name"
    assert recipe.stages[2].teachers[0].model == "stage:joint"
    assert recipe.output_dir == "runs/demo"


@pytest.mark.parametrize(
    "override", ["data.train=b.txt", "data.train.file=b.txt", "data.train=[b.txt]"]
)
def test_relative_files_of_an_override_start_at_the_current_folder(write, tmp_path, override):
    recipe = load_recipe(write(GOOD), [override, "stages.tower.model.base=../m"]).recipe
    assert recipe.data.train[0].file == f"{tmp_path}/here/b.txt"
    assert recipe.stages[0].model.base == f"{tmp_path}/m"
    assert recipe.evaluate.dev.file == f"{tmp_path}/recipes/dev.csv"


def test_a_key_beside_an_override_keeps_its_folder(write, tmp_path):
    recipe = load_recipe(write(GOOD), ["data.train.limit=5"]).recipe
    assert recipe.data.train[0].file == f"{tmp_path}/recipes/text/a.txt"
    assert recipe.data.train[0].limit == 5


def test_the_resolved_recipe_loads_as_an_equal_one(write, tmp_path):
    recipe = load_recipe(write(GOOD), ["seed=7", "args.run_name='1e-5'"]).recipe
    text = resolved_yaml(recipe)
    path = tmp_path / "elsewhere.yaml"
    path.write_text(text)
    assert load_recipe(str(path)).recipe == recipe
    assert resolved_yaml(load_recipe(str(path)).recipe) == text


def test_the_resolved_recipe_spells_out_defaults_and_nothing_foreign(write, tmp_path):
    path = tmp_path / "resolved.yaml"
    path.write_text(resolved_yaml(load_recipe(write(GOOD)).recipe))
    data = load(path).data
    assert data["seed"] == 42
    assert data["evaluate"]["score_range"] == [0.0, 5.0]
    assert data["stages"][0]["model"] == {
        "base": f"{tmp_path}/recipes/encoder",
        "dropout": 0.1,
        "training_head": False,
        "trust_remote_code": False,
    }
    assert data["stages"][1]["model"]["cross_attention_every"] is None
    assert data["stages"][1]["model"]["cross_residual"] == "stream"
    assert data["data"] == {
        "train": [{"file": f"{tmp_path}/recipes/text/a.txt"}],
        "streaming": False,
    }
    assert data["stages"][1]["loss"] == {"type": "JTCSELoss", "ictm_weight": 1}


def test_resolved_stages_are_laid_over_the_recipe(write):
    loaded = load_recipe(write(GOOD))
    recipe = loaded.recipe
    tower, joint, student = loaded.stages
    assert tower.args == {
        "learning_rate": 3e-5,
        "per_device_train_batch_size": 64,
        "eval_strategy": "epoch",
    }
    assert joint.args == recipe.args
    assert tower.data is recipe.data
    assert joint.data == recipe.stages[1].data != recipe.data
    assert joint.evaluate is recipe.evaluate
    assert student.evaluate == recipe.stages[2].evaluate != recipe.evaluate


def test_every_fault_of_keys_and_names_is_told_at_once_with_its_line(write):
    text = """\
description: demo
seeed: 3
args: {learning_rate: "1e-5", seed: 1}
stages:
  - name: one
    model: {base: "stage:two"}
    loss: {type: CoSENTLoss, scal: 1}
    args: {eval_strategy: steps}
  - name: two
    model: {towers: ["stage:on", "stage:two"]}
    loss: {type: CoSENTLos}
    data: {train: a.txt}
  - name: One
    model: {base: embedded, dropout: 2}
    loss: {type: MSELoss}
    data: {train: a.txt}
    teachers: [{model: "stage:four"}]
  - name: results.json
    model: {base: embedded}
    loss: {type: MSELoss}
    data: {train: a.txt}
  - name: "12"
    model: {base: embedded}
    loss: {type: SimCSELoss}
    data: {train: a.txt}
"""
    assert faults(write, text, "sed=1") == [
        "r.yaml:1 name: expected a value, found none. Add it (Short name of the run).",
        "r.yaml:2 seeed: expected a known key, found 'seeed'. Did you mean 'seed'?",
        "r.yaml:6 stages[0].model.base: expected an earlier stage, found 'stage:two', a later stage. No stage comes before; name a model.",
        "r.yaml:10 stages[1].model.towers[0]: expected an earlier stage, found 'stage:on', no stage of this recipe. Did you mean 'stage:one'?",
        "r.yaml:10 stages[1].model.towers[1]: expected an earlier stage, found 'stage:two', this stage itself. Use one of: one.",
        "r.yaml:13 stages[2].name: expected a name of its own, found 'One', taken by stages[0]. Choose another.",
        "r.yaml:14 stages[2].model.dropout: expected a number below 1, found 2. Correct it (Hidden and attention dropout in training; null keeps the model's own).",
        "r.yaml:17 stages[2].teachers[0].model: expected an earlier stage, found 'stage:four', no stage of this recipe. Use one of: one, two.",
        "r.yaml:18 stages[3].name: expected a name free for a folder, found 'results.json', a file of the run. Choose another.",
        "r.yaml:22 stages[4].name: expected a name that --set cannot read as a position, found '12'. Add a letter.",
        "--set sed: expected a known key, found 'sed'. Did you mean 'seed'?",
    ]


def test_every_fault_against_the_libraries_is_told_at_once_with_its_line(write):
    text = """\
name: demo
output_dir: out
args: {learning_rate: "1e-5", seed: 1}
stages:
  - name: one
    model: {base: embedded}
    loss: {type: CoSENTLoss, scal: 1}
    args: {eval_strategy: steps}
  - name: two
    model: {towers: ["stage:one", embedded]}
    loss: {type: CoSENTLos}
    data: {train: a.txt}
  - name: three
    model: {base: embedded}
    loss: {type: MSELoss}
    data: {train: a.txt}
"""
    assert faults(write, text, "stages.two.args.max_steps=x") == [
        "r.yaml:3 args.learning_rate: expected a number, found '1e-5'. Remove the quotes.",
        "r.yaml:3 args.seed: expected no 'seed' here, found one. Set the recipe's 'seed', and remove 'seed'.",
        "r.yaml:5 stages[0]: expected training data of the stage or the recipe, found none. Add 'data: {train: FILE}' to either.",
        "r.yaml:7 stages[0].loss.scal: expected an argument of CoSENTLoss, found 'scal'. Did you mean 'scale'?",
        "r.yaml:8 stages[0].args.eval_strategy: expected pairs to evaluate on in stages[0].evaluate.dev or the recipe's evaluate.dev, found none. Add them, or remove 'eval_strategy'.",
        "r.yaml:11 stages[1].loss.type: expected the name of a loss, found 'CoSENTLos'. Did you mean 'CoSENTLoss'?",
        "r.yaml:13 stages[2].teachers: expected the models that MSELoss learns from, found none. Add 'teachers: [{model: NAME}]'.",
        "--set stages.two.args.max_steps: expected a whole number, found 'x'. Correct the value.",
    ]


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("sed=1", "--set sed: expected a known key, found 'sed'. Did you mean 'seed'?"),
        (
            "stages.tower.modle.base=x",
            "--set stages.tower.modle.base: expected a known key, found 'modle'. Did you mean "
            "'model'?",
        ),
        (
            "data.train.limitt=1",
            "--set data.train.limitt: expected a known key, found 'limitt'. Did you mean 'limit'?",
        ),
        (
            "args..x=1",
            "--set args..x: expected a SentenceTransformerTrainingArguments field, found ''. "
            "Remove it.",
        ),
        ("name.x=1", "--set name.x: expected keys below name, found 'demo'. Set it as a whole."),
        ("seed.x=1", "--set seed.x: expected keys below seed, found 42. Set it as a whole."),
    ],
)
def test_a_key_that_the_command_line_alone_has_is_told_by_its_option(write, override, fault):
    assert faults(write, GOOD.replace("name: demo", "name: demo\nseed: 42"), override) == [fault]


def test_a_loss_value_out_of_range_is_told_with_its_line_or_its_option(write):
    text = GOOD.replace("temperature: 0.05", "temperature: -1")
    assert faults(write, text, "stages.joint.loss.ictm_weight=-0.5") == [
        "r.yaml:14 stages[0].loss.temperature: expected a number above 0, found -1. Correct the "
        "value.",
        "--set stages.joint.loss.ictm_weight: expected a number of at least 0, found -0.5. Correct "
        "the value.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "stages: 5\n",
        "stages: [5]\n",
        "stages: [{name: 5, model: 5, loss: 5, args: 5, evaluate: 5, teachers: 5}]\n",
        "args: [1]\nevaluate: x\nstages: [{args: {eval_strategy: [1]}, loss: {type: 5}}]\n",
    ],
)
def test_parts_of_a_wrong_type_hide_no_other_faults_and_raise_nothing_else(write, text):
    assert any("1 name: expected a value" in fault for fault in faults(write, text))


def test_recipe_level_evaluation_needs_pairs_for_each_stage_that_uses_it(write):
    text = GOOD.replace(
        "evaluate: {dev: other.csv, score_range: [0, 1]}", "evaluate: {test: {x: a.csv}}"
    )
    text = text.replace("args:\n  learning_rate", "args:\n  eval_on_start: true\n  learning_rate")
    assert faults(write, text) == [
        "r.yaml:6 args.eval_on_start: expected pairs to evaluate on in stages[2].evaluate.dev or "
        "the recipe's "
        "evaluate.dev, found none. Add them, or remove 'eval_on_start'."
    ]


@pytest.mark.parametrize(
    ("changes", "held_out"),
    [
        (["stages.tower.evaluate={test: {x: a.csv}}"], True),
        (["evaluate=null"], True),
        ([], False),
        (["stages.tower.evaluate={}", "stages.tower.args.eval_strategy=no"], False),
    ],
)
def test_a_stage_that_evaluates_without_a_set_to_choose_by_holds_sentences_out(
    write, changes, held_out
):
    loaded = load_recipe(write(GOOD), changes)
    assert [
        stage.evaluate is not None
        and stage.evaluate.dev is not None
        and stage.evaluate.dev.unlabelled
        for stage in loaded.stages
    ] == [
        held_out,
        False,
        False,
    ]
    # What is written of the recipe says what its user said.
    assert "unlabelled: true" not in resolved_yaml(loaded.recipe)


@pytest.mark.parametrize(
    "change", ["data={train: {dataset: d/d}, streaming: true}", "data={pairs: a.csv}"]
)
def test_what_cannot_hold_sentences_out_asks_for_a_set(write, change):
    told = faults(
        write, GOOD, "stages.tower.evaluate={}", f"stages.tower.{change}", "args.max_steps=5"
    )
    assert any(
        "eval_strategy: expected pairs to evaluate on in stages[0].evaluate.dev" in fault
        for fault in told
    )


def test_an_override_can_mend_a_recipe(write):
    text = GOOD.replace("name: demo\n", "", 1)
    assert load_recipe(write(text), ["name=mended"]).recipe.name == "mended"


@pytest.fixture
def demo(write, tmp_path, monkeypatch):
    """A checkout in which `demo` is the one bundled recipe."""
    monkeypatch.setattr(bundled, "__file__", str(tmp_path / "st_jtcse" / "bundled.py"))
    return write(GOOD, "demo.yaml")


def test_bundled_recipes_are_found_by_name(demo, tmp_path):
    (tmp_path / "here" / "demo").mkdir()  # A run's output folder of the same name hides nothing.
    loaded = load_recipe("demo")
    assert str(loaded.path) == demo
    assert loaded.path.stem == "demo"
    assert loaded.source.name == "demo.yaml"


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        (
            "dmeo",
            "recipe: expected a file or the name of a bundled recipe, found 'dmeo'. Did you mean "
            "'demo'?",
        ),
        (
            "zzz",
            "recipe: expected a file or the name of a bundled recipe, found 'zzz'. Use one of: "
            "demo.",
        ),
        ("demo.yaml", "demo.yaml: expected a recipe file, found none. Correct the path."),
        ("x/demo", "x/demo: expected a recipe file, found none. Correct the path."),
        (".", ".: expected a recipe file, found a folder. Name a file in it."),
        ("", ".: expected a recipe file, found a folder. Name a file in it."),
        ("~nobody-here/x", "~nobody-here/x: expected a recipe file, found none. Correct the path."),
        (
            f"{'x' * 300}.yaml",
            f"{'x' * 300}.yaml: expected a readable file, found: File name too long. Check the "
            "path.",
        ),
    ],
)
@pytest.mark.usefixtures("demo")
def test_a_reference_to_nothing_is_refused(reference, sentence):
    with pytest.raises(UserError) as caught:
        load_recipe(reference)
    assert str(caught.value) == sentence


def test_a_file_without_a_suffix_is_read(write):
    assert load_recipe(write(GOOD, "plain")).path.stem == "plain"
