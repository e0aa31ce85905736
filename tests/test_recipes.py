"""Every bundled recipe, found by globbing: it validates, sources its values, and goes on tiny
models.
"""

import json
import math
import re
import shlex
import shutil

import pytest
import yaml
from conftest import (
    WORDS,
    make_config,
    make_sentences,
    make_tokenizer,
    save_encoder,
    save_translator,
)
from faults.conftest import sampled
from test_tables_and_figures import COMMANDS
from transformers import BertForMaskedLM

from st_jtcse import bundled
from st_jtcse.cli.train import main
from st_jtcse.evaluation.protocols import suites
from st_jtcse.recipe.extends import load
from st_jtcse.recipe.load import load_recipe

RECIPES = bundled.recipes()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Stand-ins for what recipes load: backbones, one with other words, one deep; translators, text
    and pairs.
    """
    folder = tmp_path_factory.mktemp("tiny")
    shape = {"num_hidden_layers": 2, "max_position_embeddings": 160}
    save_encoder(folder / "backbone", 1, **shape)
    save_encoder(folder / "six-layers", 1, **shape | {"num_hidden_layers": 6})
    save_encoder(folder / "other-words", 2, words=WORDS[::-1], **shape)
    save_translator(folder / "translator", 0)
    BertForMaskedLM(make_config(num_hidden_layers=1)).save_pretrained(folder / "generator")
    make_tokenizer().save_pretrained(folder / "generator")
    (folder / "text.txt").write_text("\n".join(make_sentences(80)) + "\n")
    left, right = make_sentences(18, seed=5), make_sentences(18, seed=6)
    lines = [
        {"sentence1": a, "sentence2": b, "score": i % 6, "label": i % 3, "binary": i % 2}
        for i, (a, b) in enumerate(zip(left, right))
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def tiny_pairs(tiny, block):
    """The stand-in's columns that hold what the block's own labels hold."""
    if block.get("labels") == "none":
        return {
            "file": str(tiny / "pairs.jsonl"),
            "columns": ["sentence1", "sentence2", "sentence1"],
        }
    if isinstance(block.get("dev"), dict) and isinstance(block["dev"].get("columns"), dict):
        own = {"label": "label"}
        columns = {name: own.get(name, "sentence1") for name in block["dev"]["columns"]}
        return {"file": str(tiny / "pairs.jsonl"), "columns": columns}
    if block.get("labels") == "classes" and "bins" not in block:
        texts = ["sentence1", "sentence2"]
        if isinstance(block["pairs"], dict) and len(block["pairs"].get("columns", ())) == 2:
            texts = ["sentence1"]
        return {"file": str(tiny / "pairs.jsonl"), "columns": [*texts, "label"]}
    score = {(0, 1): "binary", (1, 5): "binary", (0, 2): "label"}.get(
        tuple(block.get("score_range", (0, 5))), "score"
    )
    return {"file": str(tiny / "pairs.jsonl"), "columns": ["sentence1", "sentence2", score]}


def shrink_models(shrunk, tiny):
    """Replace the models of one block."""
    if shrunk.get("base") == "embedded":
        shrunk.setdefault("pooling", "mean")
    for key in ("base", "cross_encoder"):
        if key in shrunk and not shrunk[key].startswith("stage:"):
            shrunk[key] = str(tiny / "backbone")
    if isinstance(shrunk.get("model"), str) and not shrunk["model"].startswith("stage:"):
        shrunk["model"] = str(tiny / "backbone")
        # The embedded model comes with a pooling of its own, its stand-in does not.
        shrunk.setdefault("pooling", "mean")


def shrink(value, tiny):
    """Replace every model and data source of a recipe by the stand-ins."""
    if isinstance(value, list):
        return [shrink(item, tiny) for item in value]
    if not isinstance(value, dict):
        return value
    shrunk = {key: shrink(item, tiny) for key, item in value.items()}
    shrink_models(shrunk, tiny)
    if "pivots" in shrunk:
        translator = str(tiny / "translator")
        shrunk["pivots"] = [
            {"name": name, "forward": translator, "back": translator} for name in value["pivots"]
        ]
        shrunk["max_length"] = 12
    if "train" in shrunk:
        shrunk["train"] = str(tiny / "text.txt")
    if "generator" in shrunk:
        shrunk["generator"] = str(tiny / "generator")
    if "pairs" in shrunk:
        shrunk["pairs"] = tiny_pairs(tiny, value)
    small = {"dimensions": 8, "queue_size": 20, "whitening_groups": 8, "embedding_dimension": 32}
    shrunk |= {key: size for key, size in small.items() if key in shrunk}
    if "dev" in shrunk:
        shrunk["dev"] = tiny_pairs(tiny, value)
    if isinstance(shrunk.get("test"), dict):
        shrunk["test"] = {name: tiny_pairs(tiny, value) for name in shrunk["test"]}
    return shrunk


# One of each shape; what differs from one of these in constants, or has its stages from them, is
# rehearsed alone.
RUN = ["simcse-mini", "tncse-mini-uc", "rankcse-listnet-mini", "lsrns-mini", "lsrns-losses-mini"]
RUN += ["cosent-mini", "cosent-cross-mini", "cosent-lambda-mini", "cosent-threshold-mini"]
# With round trips, several tokenizers, classes.
RUN += ["edfse-bert", "jtcse-roberta-uc", "cosent-baselines-nli-bert"]

# Their stages are those of another recipe that is rehearsed, on other data or with other constants.
ALIKE = {
    "jtcse-terms-bert",
    "tncse-single-bert",
    "tncse-terms-bert",
    "lsrns-rankings-bert",
    "cosent-cross-roberta-zh",
    "cosent-pooling-nli-bert",
    "jtcse-layer-norms-bert",
    "ensembles-mini",
    "sickr-mini",
    "cosent-baselines-zh",
    "cosent-cross-zh",
}
ALIKE |= {"cosent-baselines-sickr-bert", "cosent-baselines-paraphrase-bert"}
ALIKE |= {
    "arccse-bert",
    "consert-bert",
    "esimcse-bert",
    "iscse-bert",
    "pcl-bert",
    "pcl-mini",
    "promptbert",
}
ALIKE |= {"whitenedcse-bert", "infocse-bert"}
# On images, which tests/training/test_images.py makes.
ALIKE |= {"lsrns-stl10-resnet18", "lsrns-stl10-vit"}
ALIKE |= {name for name in RECIPES if re.fullmatch("cosent-threshold-.*-(bert|zh)", name)}
# The same stages on two texts.
ALIKE |= {
    name
    for name in RECIPES
    if name.endswith("-sickr-bert") and "sweep:" in RECIPES[name].read_text()
}


SWEPT = {name for name, path in RECIPES.items() if "\nsweep:" in path.read_text()}


def ends_of_sweep(name):
    """What a recipe's sweep is with the first and the last value of each key; nothing where it has
    none.
    """
    swept = load(RECIPES[name]).data.get("sweep")
    if swept is None:
        return {}
    blocks = [swept] if isinstance(swept, dict) else [swept[0], swept[-1]]
    return {
        "sweep": [
            {key: values[:1] + values[1:][-1:] for key, values in block.items()} for block in blocks
        ]
    }


@pytest.fixture
def command(tiny, tmp_path):
    """What runs a recipe on the stand-ins, two steps a stage."""

    def write(name, **changes):
        recipe = (
            shrink(load(RECIPES[name]).data, tiny) | {"cache_dir": str(tiny / "cache")} | changes
        )
        if name.endswith("roberta-uc"):  # RoBERTa towers, and a BERT as the fused checkpoint
            fused = next(stage for stage in recipe["stages"] if stage["name"] == "uc")
            fused["model"]["members"][1]["model"] = str(tiny / "other-words")
        for stage in recipe["stages"]:
            stage.get("args", {}).pop("max_steps", None)
            stage.get("args", {}).pop("per_device_train_batch_size", None)
        recipe["args"] = recipe.get("args", {}) | {
            "per_device_train_batch_size": 8,
            "eval_strategy": "steps",
        }
        text = yaml.safe_dump(recipe)
        if name == "ablation-mini":  # with cross-attention after up to six
            text = text.replace(str(tiny / "backbone"), str(tiny / "six-layers"))
        (tmp_path / "recipe.yaml").write_text(text)
        small = [
            "args.max_steps=2",
            "args.eval_steps=2",
            "args.logging_steps=1",
            "args.use_cpu=true",
        ]
        options = [part for setting in small for part in ("--set", setting)]
        return [str(tmp_path / "recipe.yaml"), "--output-dir", str(tmp_path / "run"), *options]

    return write


# tests/test_docs.py runs these two as README shows them.
REHEARSED = [
    name
    for name in RECIPES
    if name not in {*RUN, *ALIKE, "adapt", "quickstart"} or name in SWEPT - ALIKE
]
# Those of the papers' size differ in names and constants, which other tests read.
SMALL = [name for name in REHEARSED if name.endswith("-mini")]
PUBLISHED = [name for name in REHEARSED if name not in SMALL]


@pytest.mark.parametrize("name", sampled(REHEARSED, *SMALL, *PUBLISHED[::4]))
def test_recipe_takes_a_step_of_each_stage_on_tiny_models(name, command, tmp_path):
    # The small recipes sweep the same keys; of the terms' combinations two single terms and no
    # training at all.
    changes = {} if name.endswith("-mini") else ends_of_sweep(name)
    if name == "jtcse-terms-mini":
        changes = {"sweep": load(RECIPES[name]).data["sweep"][-3:]}
    if name in ("tncse-terms-mini", "jtcse-layer-norms-mini"):
        changes = ends_of_sweep(name)
    assert main([*command(name, **changes), "--dry-run"]) == 0
    assert not (tmp_path / "run").exists()


def changes_of_the_page():
    """What the page of tables and figures changes in recipes, each once; other models have
    stand-ins anyway.
    """
    found = {}
    for command in COMMANDS:
        _, name, *words = shlex.split(command)
        words = [re.sub(r", model\.base: \[[^]]*\]", "", word) for word in words]
        apart = "model.base=", "stages.uc.model.members"  # The latter in the test behind the next.
        changes = [word for word in words if "=" in word and not word.startswith(apart)]
        if changes and name in RECIPES:
            found[" ".join(changes)] = (name, changes)
    return found


# As ablation-mini, cosent-lambda-mini, lsrns-pooling-mini and lsrns-losses-mini sweep them.
ELSEWHERE = (
    "sweep={stages.joint.model.cross_attention_every",
    "sweep={stages.cosent.loss.scale",
    "stages.student.loss",
)
ELSEWHERE += ("sweep={model.pooling: [cls, mean, first_last, attention]}",)
CHANGES = {
    key: value for key, value in changes_of_the_page().items() if not key.startswith(ELSEWHERE)
}


@pytest.mark.parametrize(("name", "changes"), CHANGES.values(), ids=CHANGES)
def test_a_recipe_goes_as_the_page_of_tables_changes_it(name, changes, command):
    stages = re.findall(r"stages\.(\w+)\.", changes[0])[:1]
    options = [part for change in changes for part in ("--set", change)]
    options += [part for stage in stages for part in ("--stage", stage)]
    assert main([*command(name), "--dry-run", *options]) == 0


def test_a_twin_of_one_recipe_is_fused_by_another_as_the_page_has_it(command, tmp_path):
    """What `tncse-roberta` leaves is read by the command of the page that follows it."""
    twin = str(tmp_path / "twin")
    stages = [part for name in ("encoder_1", "encoder_2", "joint") for part in ("--stage", name)]
    assert main([*command("tncse-roberta"), "--output-dir", twin, *stages]) == 0
    _, _, *words = shlex.split(
        next(c for c in COMMANDS if c.startswith("st-train tncse-roberta-uc"))
    )
    words = [word.replace("runs/tncse-roberta", twin) for word in words]
    assert main([*command("tncse-roberta-uc"), *words]) == 0
    record = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [stage["name"] for stage in record["stages"]] == ["uc", "uc_distilled"]
    shutil.rmtree(tmp_path / "run")


@pytest.mark.parametrize("name", RUN)
def test_recipe_runs_two_steps_on_tiny_models(name, command, tmp_path, request):
    if name in SWEPT:  # Every run is rehearsed above.
        request.getfixturevalue("unrehearsed")
    changes = ends_of_sweep(name)
    assert main(command(name, **changes)) == 0
    runs = sorted((tmp_path / "run").rglob("results.json"))
    assert len(runs) == sum(
        math.prod(map(len, block.values())) for block in changes.get("sweep", [{}])
    )
    stages = yaml.safe_load((tmp_path / "recipe.yaml").read_text())["stages"]
    for run in runs:
        results = json.loads(run.read_text())
        steps = [stage["steps"] for stage in results["stages"]]
        assert results["finished"] and steps == [2 if stage["loss"] else 0 for stage in stages]
    shutil.rmtree(tmp_path / "run")


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_has_a_header_and_says_where_its_values_come_from(name):
    text = RECIPES[name].read_text()
    header = re.match(r"(# .*\n)+", text)[0]
    for word in ("# What: ", "# Needs: ", f"# Run: st-train {name}"):
        assert word in header
    recipe = load_recipe(name).recipe
    assert recipe.name == name and recipe.description and recipe.method and recipe.needs
    assert recipe.output_dir == f"runs/{name}"
    # A value that is inherited has its source where it is written.
    sourced = r"\b(learning_rate|temperature|cross_[arw]\w+|\w+_weight|direction|dropout|max_steps|scale): "
    for line in text.splitlines():
        if re.search(sourced, line) and not line.lstrip(" -").startswith(
            ("#", "stages.", "{stages.")
        ):
            assert "#" in line, f"{name}: {line.strip()} has no source"


def test_jtcse_and_tncse_have_the_papers_constants():
    def joint(name):
        recipe = load_recipe(name).recipe
        return recipe, next(stage for stage in recipe.stages if stage.name == "joint")

    recipe, stage = joint("jtcse-bert")
    assert (
        stage.args["learning_rate"] == 1.3e-6 and recipe.args["per_device_train_batch_size"] == 64
    )
    assert (stage.model.cross_attention_every, stage.model.cross_residual, stage.model.dropout) == (
        2,
        "stream",
        None,
    )
    assert stage.loss.arguments == {"temperature": 0.05, "direction": "random", "ictm_weight": 0.5}
    recipe, stage = joint("tncse-bert")
    assert stage.args["learning_rate"] == 1e-6 and stage.model.dropout == 2.5e-4
    assert stage.model.cross_attention_every is None
    assert (
        stage.loss.arguments["cross_weight"] == 0 and stage.loss.arguments["direction"] == "1_to_2"
    )
    assert [s.args["learning_rate"] for s in recipe.stages[:2]] == [1.5e-5, 2e-5]


NLI, OTHER = (1, 64), (4, 16)
COSENT = {
    "cosent-nli-bert": (*NLI, "first_last"),
    "cosent-nli-roberta": (*NLI, "cls"),
    "cosent-baselines-nli-bert": (*NLI, "first_last"),
    "cosent-baselines-stsb-bert": (*OTHER, "mean"),
} | {f"cosent-{data}-bert": (*OTHER, "mean") for data in ("stsb", "sickr", "paws", "mrpc")}


@pytest.mark.parametrize("name", COSENT)
def test_cosent_has_the_papers_constants(name):
    recipe = load_recipe(name).recipe
    args = recipe.args
    assert (args["num_train_epochs"], args["per_device_train_batch_size"]) == COSENT[name][:2]
    assert (args["lr_scheduler_type"], args["warmup_steps"], args["weight_decay"]) == (
        "linear",
        0.1,
        0.01,
    )
    assert recipe.stages[0].loss.type == "CoSENTLoss" and recipe.stages[0].loss.arguments == {
        "scale": 20.0
    }
    for stage in recipe.stages:
        assert (stage.model.pooling, stage.model.max_seq_length) == (COSENT[name][2], 128)
        assert stage.args == {"learning_rate": 2e-5}


@pytest.mark.parametrize("ranking", ["listnet", "listmle", "cosent"])
def test_rankcse_has_the_papers_constants(ranking):
    recipe = load_recipe(f"rankcse-{ranking}-bert").recipe
    (stage,) = recipe.stages
    assert (recipe.args["per_device_train_batch_size"], recipe.args["eval_steps"]) == (128, 125)
    assert (stage.args["learning_rate"], stage.model.max_seq_length) == (3e-5, 32)
    assert [teacher.weight for teacher in stage.teachers] == [0.33333333, 0.66666667]
    own = {
        "listnet": {"teacher_temperature": 0.025},
        "cosent": {"cosent_scale": 20.0},
        "listmle": {},
    }[ranking]
    weights = {"consistency_weight": 1.0, "distillation_weight": 1.0}
    assert stage.loss.arguments == {"ranking": ranking, "temperature": 0.05} | weights | own


@pytest.mark.parametrize("name", ["lsrns-bert", "lsrns-roberta"])
def test_lsrns_has_the_papers_constants(name):
    recipe = load_recipe(name).recipe
    (stage,) = recipe.stages
    wanted = {"num_train_epochs": 4, "per_device_train_batch_size": 64, "eval_steps": 125}
    assert {key: recipe.args[key] for key in wanted} == wanted
    assert stage.args["learning_rate"] in (1e-5, 2e-5, 3e-5) and stage.model.training_head == "kept"
    assert stage.loss.arguments["temperature"] == 0.05 and stage.loss.arguments["ranks"] == "soft"
    assert (stage.loss.arguments["retention"], stage.loss.arguments["rank_loss"]) == (
        "linear",
        "listnet",
    )


REPORTED = {
    name
    for suite in suites().values()
    for found in (suite.average, *(row.reported for row in suite.rows))
    for name in found
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_stage_is_reported_under_a_name_of_the_papers_tables(name):
    recipe = load_recipe(name).recipe
    assert {stage.reported_as for stage in recipe.stages} <= {None, *REPORTED}


# These start from models as shipped.
SHIPPED = ("adapt", "labels", "questions", "quickstart", "triplets", "whitening")


def test_a_plain_encoder_has_its_pooling_said():
    for name in RECIPES:
        for stage in load_recipe(name).recipe.stages:
            if stage.model.base is not None and name not in SHIPPED:
                assert "pooling" in stage.model.model_fields_set, f"{name}: {stage.name}"
            for frozen in (*(stage.model.members or ()), *stage.teachers):
                assert (
                    frozen.pooling
                    or frozen.model == "embedded"
                    or frozen.model.startswith("stage:")
                ), name
