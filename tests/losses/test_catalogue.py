"""Every loss that a recipe can name trains on data of its kind; every other is refused, as is data
of another kind.
"""

import contextlib
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import make_model, make_sentences, save_encoder
from safetensors.torch import load_file
from sentence_transformers.sentence_transformer import losses as theirs

from st_jtcse.cli.train import main
from st_jtcse.losses import catalogue
from st_jtcse.losses.catalogue import declaration_of, loss_class, loss_names
from st_jtcse.training.callbacks import LOSS_WEIGHTS, LossWeights

# What a loss is given beside its defaults.
ARGUMENTS = {
    "SoftmaxLoss": {"embedding_dimension": 32, "num_labels": 2},
    "WhitenedCSELoss": {"whitening_groups": 8},
    "ESimCSELoss": {"queue_size": 4},
    "ISCSELoss": {"queue_size": 4, "neighbours": 2},
}
PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
NAMED = [(cross, name) for cross in (False, True) for name in loss_names(cross)]
LISTED = [
    *((False, name) for name in {*loss_names(), *catalogue._THEIRS}),
    *((True, name) for name in {*loss_names(True), *catalogue._THEIRS_OF_CROSS_ENCODERS}),
]
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .*SymmetricRankingLoss is deprecated:DeprecationWarning"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("losses")
    for number, name in enumerate("ab"):
        save_encoder(folder / name, number, num_hidden_layers=2, hidden_size=32)
    texts = make_sentences(16), make_sentences(16, 1)
    (folder / "text.txt").write_text("\n".join(texts[0]) + "\n")
    rows = (
        {"one": a, "two": b, "three": f"{b} on", "score": number % 6, "label": number % 2}
        for number, (a, b) in enumerate(zip(*texts))
    )
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def pairs(labels, texts):
    label = {"scores": ["score"], "classes": ["label"], "none": []}[labels]
    return {
        "pairs": {"file": "rows.jsonl", "columns": [*["one", "two", "three"][:texts], *label]},
        "labels": labels,
    }


def stage(cross, name):
    declared = declaration_of(loss_class(name, cross))
    model = {"base": "./a", "pooling": "cls"}
    if cross:
        model = {"cross_encoder": "./a", "num_labels": 2 if declared.classes == "outputs" else 1}
    elif declared.twin and declared.pooler_weight:
        model = {"towers": ["./a", "./b"], "pooling": "cls"}
    on_rows = not declared.sentences and declared.labels is not None
    data = pairs(declared.labels, (declared.texts or (2,))[0]) if on_rows else {"train": "text.txt"}
    taught = {"teachers": [{"model": "./b", "pooling": "cls"}]} if declared.teachers else {}
    if declared.third_view is True:
        taught["views"] = ["dropout", "dropout", "negate"]
    return {
        "name": "s",
        "model": model,
        "loss": {"type": name} | ARGUMENTS.get(name, {}),
        "data": data,
    } | taught


def train(project, block, *options):
    args = {
        "max_steps": 2,
        "per_device_train_batch_size": 8,
        "use_cpu": True,
        "disable_tqdm": True,
        "save_steps": 1,
    }
    recipe = {"name": "tiny", "cache_dir": str(project / "cache"), "args": args, "stages": [block]}
    (project / "recipe.yaml").write_text(json.dumps(recipe))
    name = f"run-{block['loss']['type']}-{'cross_encoder' in block['model']}"
    return main(
        [str(project / "recipe.yaml"), "--output-dir", str(project / name), *options]
    ), project / name


@pytest.mark.parametrize(("cross", "name"), NAMED)
def test_a_loss_trains_two_steps_on_data_of_its_kind(project, cross, name):
    # The rehearsal is its first step, saved and evaluated; the run goes two more.
    status, folder = train(project, stage(cross, name))
    assert status == 0
    (record,) = json.loads((folder / "results.json").read_text())["stages"]
    assert record["steps"] == 2 and record["loss"]["type"] == name


@pytest.mark.parametrize(("cross", "name"), sorted(set(LISTED) - set(NAMED)))
def test_a_loss_that_takes_more_than_a_recipe_gives_is_refused_in_a_sentence(
    project, capsys, cross, name
):
    block = {"name": "s", "data": {"train": "text.txt"}, "loss": {"type": name}}
    status, folder = train(
        project, block | {"model": {"cross_encoder": "./a"} if cross else {"base": "./a"}}
    )
    told = capsys.readouterr().err
    assert status == 2 and not folder.exists()
    assert "stages[0].loss.type: expected a loss whose" in told and f"found '{name}', wh" in told
    assert told.count("\n") == 1 and told.endswith("Choose another loss.\n")


@pytest.mark.parametrize(("cross", "name"), NAMED)
@pytest.mark.parametrize(
    "data", [None, ("scores", 2), ("classes", 2), ("none", 2), ("none", 3)], ids=str
)
def test_every_loss_and_data_go_together_or_are_refused_in_a_sentence(
    project, capsys, cross, name, data
):
    block = stage(cross, name) | {"data": {"train": "text.txt"} if data is None else pairs(*data)}
    if data is not None:
        for key in ("teachers", "views"):  # Beside pairs they are a fault of their own.
            block.pop(key, None)
    declared = declaration_of(loss_class(name, cross))
    fits = declared.sentences or declared.labels is None
    if data is not None:
        fewest, most = declared.texts or (1, None)
        fits = (
            not declared.sentences
            and declared.labels in (None, data[0])
            and fewest <= data[1] <= (most or data[1])
        )
    with contextlib.nullcontext() if not fits else pytest.MonkeyPatch.context() as patch:
        if patch is not None:  # That it goes is shown above, once for each loss.
            patch.setattr("st_jtcse.training.plan.rehearse", lambda *given: [])
        status, _ = train(project, block, "--dry-run")
    told = capsys.readouterr().err
    assert status == (0 if fits else 2), told
    assert fits or ("expected" in told and "Traceback" not in told and told.count("\n") == 1)


@pytest.mark.parametrize("kind", [theirs.DenoisingAutoEncoderLoss, theirs.ContrastiveTensionLoss])
def test_a_loss_that_calls_its_model_otherwise_keeps_what_it_learns_beside_it(
    project, tmp_path, kind
):
    """A tied decoder, and the second encoder of contrastive tension: once, and without the model's
    own weights.
    """
    model = make_model(project / "a")
    loss = kind(model)
    kept = LossWeights(loss, model)
    (tmp_path / "checkpoint-1").mkdir()
    kept.on_save(
        SimpleNamespace(output_dir=tmp_path),
        SimpleNamespace(is_world_process_zero=True, global_step=1),
        None,
    )
    saved = load_file(tmp_path / "checkpoint-1" / LOSS_WEIGHTS)
    theirs_alone = {id(parameter) for parameter in loss.parameters()} - {
        id(own) for own in model.parameters()
    }
    before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    assert len(
        [name for name, own in loss.named_parameters() if id(own) in theirs_alone and name in saved]
    ) == len(theirs_alone)
    with torch.no_grad():
        for parameter in loss.parameters():
            if id(parameter) in theirs_alone:
                parameter.add_(1)
    kept.load(tmp_path / "checkpoint-1")
    assert all(torch.equal(tensor, before[name]) for name, tensor in loss.state_dict().items())


def test_only_losses_are_offered():
    names = {*loss_names(), *loss_names(True)}
    helpers = {
        "SiameseDistanceMetric",
        "TripletDistanceMetric",
        "BatchHardTripletLossDistanceFunction",
    }
    helpers |= {
        "NoWeightingScheme",
        "NDCGLoss1Scheme",
        "NDCGLoss2Scheme",
        "LambdaRankScheme",
        "NDCGLoss2PPScheme",
    }
    helpers |= {"PListMLELambdaWeight", "ContrastiveTensionDataLoader", "CachedLossMixin"}
    assert not names & helpers
    assert len(loss_names()) >= 27 and len(loss_names(True)) >= 7


@pytest.mark.parametrize("cross", [False, True])
def test_the_table_of_losses_has_each_of_theirs(cross):
    table = catalogue._THEIRS_OF_CROSS_ENCODERS if cross else catalogue._THEIRS
    assert set(table) == set(catalogue._their_classes(cross))


def test_the_documented_table_is_the_catalogues():
    section = PAGE.read_text().split("## Losses and their data")[1].split("\n## ")[0]
    told = re.findall(r"^\| `(\w+)`(, cross-encoder)? \| (.*) \|$", section, flags=re.MULTILINE)
    wanted = {
        (name, ", cross-encoder" if cross else "", declaration_of(loss_class(name, cross)).takes)
        for cross, name in LISTED
    }
    assert set(told) == wanted and len(told) == len(wanted)
