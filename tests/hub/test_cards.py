"""Model cards: every family's, from a real run; what they show runs, and what they claim the
results hold.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import WORDS, make_model, make_pairs, make_sentences, save_encoder, write_rows
from huggingface_hub import ModelCard
from processes import run_code
from sentence_transformers import CrossEncoder, SentenceTransformer

from st_jtcse import bundled
from st_jtcse.cli.eval import main as evaluate
from st_jtcse.cli.train import main as train
from st_jtcse.errors import UserError
from st_jtcse.hub.cards import BEGIN, END, NO_ID, updated_card
from st_jtcse.hub.model_form import model_form
from st_jtcse.recipe.load import load_recipe
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.reports.markdown import as_text
from st_jtcse.training.stage_card import family_of, reported_as, title

TEMPLATES = [path.stem for path in bundled.folder("model_cards").glob("[!_]*.md")]
# What a folder and a text may hold.
EVIL = "<script>alert(1)<b> [a](b)"
BACKBONE = f"back{EVIL}bone"
# A stage of each family, by the family's name; two ensembles, of one tokenizer and of two.
FAMILIES = {
    "simcse": "simcse",
    "jtcse": "jtcse",
    "tncse": "tncse",
    "distilled": "distilled",
    "ensemble": "ensemble",
    "ensemble_of_tokenizers": "ensemble",
    "cosent": "cosent",
    "cross": "cosent-cross-encoder",
    "rankcse": "rankcse",
    "lsrns": "lsrns",
    "contrastive": "other",
    "assembled": "assembled",
    "attention": "simcse",
}


def recipe(folder):
    """A stage a family, each of one step, on tiny encoders."""
    backbone, other = (str(folder / name) for name in (BACKBONE, "other-words"))
    single = {"base": backbone, "pooling": "cls"}
    twin = {"towers": ["stage:simcse", backbone], "pooling": "cls", "max_seq_length": 24}
    teachers = [{"model": "stage:jtcse", "weight": 0.5}]
    pairs = {"pairs": str(folder / "train.jsonl")}
    stages = [
        {
            "name": "simcse",
            "model": single | {"training_head": True},
            "loss": {"type": "SimCSELoss"},
        },
        {"name": "jtcse", "model": twin, "loss": {"type": "JTCSELoss"}},
        {
            "name": "tncse",
            "model": twin | {"cross_attention_every": None},
            "loss": {"type": "JTCSELoss", "cross_weight": 0.0, "direction": "1_to_2"},
        },
        {"name": "distilled", "model": single, "loss": {"type": "MSELoss"}, "teachers": teachers},
        {
            "name": "ensemble",
            "model": {"members": [{"model": "stage:jtcse"}, {"model": backbone, "pooling": "cls"}]},
            "loss": None,
        },
        {
            "name": "ensemble_of_tokenizers",
            "model": {"members": [{"model": "stage:simcse"}, {"model": other, "pooling": "cls"}]},
            "loss": None,
        },
        {
            "name": "cosent",
            "model": {"base": backbone, "pooling": "first_last"},
            "loss": {"type": "CoSENTLoss"},
            "data": pairs,
        },
        {
            "name": "cross",
            "model": {"cross_encoder": backbone, "max_seq_length": 24},
            "loss": {"type": "CrossEncoderCoSENTLoss"},
            "data": pairs,
        },
        {
            "name": "rankcse",
            "model": {"base": backbone, "pooling": "mean"},
            "loss": {"type": "RankCSELoss", "ranking": "listnet"},
            "teachers": teachers,
        },
        {
            "name": "lsrns",
            "model": {"base": backbone, "pooling": "max"},
            "loss": {"type": "LSRNSLoss"},
            "teachers": teachers,
        },
        {
            "name": "contrastive",
            "model": single,
            "loss": {"type": "CosineSimilarityLoss"},
            "data": pairs,
        },
        {"name": "assembled", "model": single, "loss": None},
        {
            "name": "attention",
            "model": {"base": backbone, "pooling": "attention"},
            "loss": {"type": "SimCSELoss"},
        },
    ]
    return {
        "name": "families",
        "description": "A model of each family.",
        "output_dir": "runs/families",
        "data": {"train": str(folder / "text.txt")},
        "evaluate": {"test": {"mine": str(folder / "test.jsonl")}},
        "args": {"max_steps": 1, "per_device_train_batch_size": 8, "use_cpu": True},
        "card": {"license": "apache-2.0", "language": ["en"]},
        "stages": stages,
    }


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cards")
    save_encoder(folder / BACKBONE, 1)
    save_encoder(folder / "other-words", 2, words=WORDS[::-1])
    (folder / "text.txt").write_text("\n".join([f"the dog {EVIL}", *make_sentences(24)]) + "\n")
    for seed, name in enumerate(("train", "test")):
        write_rows(folder / f"{name}.jsonl", make_pairs(16, seed))
    (folder / "families.yaml").write_text(json.dumps(recipe(folder)))
    settings = ["--set", f"cache_dir={folder / 'cache'}", "--output-dir", str(folder / "run")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("st_jtcse.training.runner.rehearse", lambda *given: None)
        assert train([str(folder / "families.yaml"), *settings]) == 0
    return folder / "run"


def snippets(text, folder):
    return [
        code.replace(NO_ID, str(folder))
        for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    ]


def result_rows(text):
    """The rows of the first table of the results."""
    shown = text.partition(BEGIN)[2].partition(END)[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in shown.splitlines()
        if "|" in line
    ][2:]


@pytest.mark.parametrize("stage", FAMILIES)
def test_names_and_texts_are_no_markup(stage, run_folder):
    text = ModelCard.load(run_folder / stage / "README.md").text
    # In blocks of code everything is shown as it is.
    shown = re.sub(r"^(```+)\w*\n.*?^\1\n", "", text, flags=re.DOTALL | re.MULTILINE)
    for mark in ("<script>", "<b>", "[a](b)"):
        assert mark not in shown
    if stage != "ensemble_of_tokenizers":  # It starts from other stages' models.
        assert "back&lt;script>alert(1)&lt;b> \\[a\\](b)bone" in shown


def test_every_template_is_some_stages():
    assert set(FAMILIES.values()) == set(TEMPLATES)


@pytest.mark.parametrize("stage", FAMILIES)
def test_a_card_claims_what_the_results_hold_and_no_more(stage, run_folder):
    results = json.loads((run_folder / "results.json").read_text())
    record = next(found for found in results["stages"] if found["name"] == stage)
    card = ModelCard.load(run_folder / stage / "README.md")
    shipped = [[f"{as_text(name)}, a plain encoder", "-"] for name in record["as_shipped"]]
    assert bool(shipped) == (stage != "cross")
    before = (
        [["before this training", f"{record['spearman_start']['mine']:.2f}"]]
        if record["steps"]
        else []
    )
    assert result_rows(card.text) == [
        *shipped,
        *before,
        ["this model", f"{record['spearman']['mine']:.2f}"],
    ]
    assert {
        (found.dataset_name, found.metric_type, found.metric_value)
        for found in card.data.eval_results
    } == {("mine", "spearmanr", record["spearman"]["mine"])}
    family = FAMILIES[stage]
    assert card.data.tags[card.data.tags.index("st-jtcse") :] == [
        "st-jtcse",
        *([family] if family != "other" else []),
    ]
    assert (card.data.license, card.data.language) == ("apache-2.0", ["en"])
    assert card.text.startswith(f"\n# families, {stage}\n")
    for digest in (*record["data_sha256"].values(), *record["weights_sha256"].values()):
        assert digest in card.text
    for part in (
        "## Method",
        "## Intended Use",
        "## Usage",
        "## Limits",
        "## Licence",
        "## Model Details",
    ):
        assert f"\n{part}\n" in card.text
    assert (
        f"seed {record['seed']}" in card.text
        and f"torch {record['environment']['torch']}" in card.text
    )
    # Where the run happened is nobody's business.
    assert str(run_folder.parent) not in card.content


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("stage", FAMILIES)
def test_a_card_passes_the_hubs_check(stage, run_folder):
    card = ModelCard.load(run_folder / stage / "README.md")
    card.validate()
    card.data.license = 7
    with pytest.raises(ValueError, match="license"):
        card.validate()


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("family", sorted(set(TEMPLATES) - {"other", "assembled"}))
def test_a_card_of_each_family_is_in_the_documents_and_valid(family):
    path = Path(__file__).parents[2] / "docs" / "cards" / f"{family}.md"
    card = ModelCard.load(path)
    card.validate()
    assert card.data.tags[-2:] == ["st-jtcse", family]
    assert not re.search(r"/(home|root|tmp|work)/", card.content)


def test_the_recipe_of_a_card_is_a_recipe(run_folder, tmp_path):
    text = (run_folder / "jtcse" / "README.md").read_text()
    (shown,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "shown.yaml").write_text(shown)
    again = load_recipe(str(tmp_path / "shown.yaml")).recipe
    assert [stage.name for stage in again.stages] == list(FAMILIES)
    assert again.stages[2].loss.arguments == {"cross_weight": 0.0, "direction": "1_to_2"}


@pytest.mark.parametrize("stage", [stage for stage in FAMILIES if stage != "cross"])
def test_every_snippet_of_a_card_gives_the_models_embeddings(stage, run_folder):
    folder = run_folder / stage
    own = model_form(folder).loading == "own_modules"
    model = SentenceTransformer(str(folder), trust_remote_code=own)
    codes = snippets((folder / "README.md").read_text(), folder)
    assert len(codes) == {"plain": 2, "registered": 3, "own_modules": 1}[model_form(folder).loading]
    for code in codes:
        names = {}
        exec(code, names)
        (sentences,) = re.findall(r"\[(\"A man.*?)\]", code)
        expected = model.encode(json.loads(f"[{sentences}]"))
        np.testing.assert_allclose(np.asarray(names["embeddings"]), expected, atol=1e-6)


def test_every_snippet_of_a_cross_encoders_card_gives_its_scores(run_folder):
    folder = run_folder / "cross"
    model = CrossEncoder(str(folder))
    first, second = snippets((folder / "README.md").read_text(), folder)
    names = {}
    exec(first, names)
    pairs = [("A man is eating.", "Someone has a meal."), ("A man is eating.", "The sky is blue.")]
    np.testing.assert_allclose(names["scores"], model.predict(pairs), atol=1e-6)
    exec(second, names)
    logits = model.predict(pairs, activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(names["logits"][:, 0].numpy(), logits, atol=1e-6)


# Stages, and which of their card's snippets is for readers without the package.
WITHOUT_PACKAGE = {"jtcse": 1, "ensemble": 1, "distilled": 0, "cosent": 1}


@pytest.fixture(scope="module")
def without_package(run_folder, tmp_path_factory):
    """What those snippets give, each with names of its own, in one process where there is no
    package.
    """
    codes = {}
    for stage, number in WITHOUT_PACKAGE.items():
        folder = run_folder / stage
        codes[stage] = snippets((folder / "README.md").read_text(), folder)[number]
    script = """
import json, sys
sys.modules["st_jtcse"] = None
for stage, code in json.loads(sys.argv[1]).items():
    names = {}
    exec(code, names)
    print(json.dumps([stage, names["embeddings"][0].tolist()]))
"""
    place = tmp_path_factory.mktemp("modules")
    said = run_code(script, json.dumps(codes), folder=place, HF_MODULES_CACHE=str(place))
    return dict(json.loads(line) for line in said.splitlines() if line.startswith('["'))


@pytest.mark.parametrize("stage", WITHOUT_PACKAGE)
def test_the_snippets_for_readers_without_the_package_need_none(stage, run_folder, without_package):
    expected = SentenceTransformer(str(run_folder / stage)).encode("A man is eating.")
    np.testing.assert_allclose(without_package[stage], expected, atol=1e-6)


def test_the_papers_figures_stand_beside_those_of_the_papers_setting_only(tmp_path):
    published = load_recipe("jtcse-bert")
    stage = published.recipe.stages[-1]
    assert reported_as(published, stage) == "JTCSE-D"
    assert (
        reported_as(load_recipe("jtcse-bert", ["seed=1", f"output_dir={tmp_path}"]), stage)
        == "JTCSE-D"
    )
    assert (
        reported_as(load_recipe("jtcse-bert", ["stages.distilled.args.learning_rate=2e-5"]), stage)
        is None
    )
    mini = load_recipe("jtcse-mini")
    assert {reported_as(mini, stage) for stage in mini.recipe.stages} == {None}
    assert title(published.recipe, stage) == "jtcse-bert, distilled"


@pytest.fixture
def copied(run_folder, tmp_path):
    """A trained folder to change."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in (run_folder / "simcse").rglob("*"):
        target = folder / path.relative_to(run_folder / "simcse")
        target.mkdir() if path.is_dir() else target.write_bytes(path.read_bytes())
    return folder


@pytest.mark.usefixtures("offline")
def test_an_evaluation_is_shown_with_its_picture_and_the_papers_figures(copied, evaluation_data):
    record = json.loads((copied / "training_results.json").read_text())
    (copied / "training_results.json").write_text(json.dumps(record | {"reported_as": "SimCSE"}))
    command = [str(copied), "--card", "--suite", "senteval-sts7", "--data", str(evaluation_data)]
    assert evaluate(command) == 3  # Of seven sets, three are there.
    found = json.loads((copied / "evaluation" / "results.json").read_text())
    rows = {row["label"]: row["score"] for row in found["suites"]["senteval-sts7"]["rows"]}
    card = ModelCard.load(copied / "README.md")
    assert f"| STS12 | spearman_all | {rows['STS12']:.2f} | 68.40 |" in card.text
    everything = "".join(path.read_text() for path in (copied / "evaluation").glob("*.[jmh]*"))
    assert str(copied.parent) not in everything and str(evaluation_data) not in everything
    assert (
        "SimCSE in the paper" in card.text
        and "JTCSE-D" not in card.text.partition(BEGIN)[2].partition(END)[0]
    )
    assert "](evaluation/senteval-sts7.png)" in card.text
    assert (copied / "evaluation" / "senteval-sts7.png").is_file()
    shown = {figure.dataset_name: figure.metric_value for figure in card.data.eval_results}
    assert shown["STS12"] == rows["STS12"] and "STS13" not in shown
    # Shown once, however often it is evaluated.
    before = (copied / "README.md").read_text()
    assert evaluate(command) == 3
    assert (copied / "README.md").read_text() == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--output-dir", "elsewhere"], "leave out --output-dir"),
        (["--pooling", "mean"], "leave out --pooling"),
    ],
)
def test_a_card_shows_the_models_own_results_only(options, said, copied, capsys):
    assert evaluate([str(copied), "--card", "--task", "senteval/CR", *options]) == 2
    assert said in capsys.readouterr().err


def test_a_model_that_is_no_folder_has_no_card_here(capsys):
    assert evaluate(["org/model", "--card", "--task", "senteval/CR"]) == 2
    assert "org/model is not a folder" in capsys.readouterr().err


def test_a_folder_without_results_has_a_card_that_claims_none(copied):
    (copied / "training_results.json").unlink()
    card = ModelCard(updated_card(copied, "org/model"))
    assert card.data.eval_results is None and card.data.get("metrics") is None
    assert "Unknown: this model came without results." in card.text
    assert NO_ID not in card.content and 'SentenceTransformer("org/model")' in card.text


def test_a_card_of_another_maker_gets_the_results_at_its_end(model_folders, tmp_path):
    folder = tmp_path / "theirs"
    make_model(model_folders[0], "cls").save_pretrained(str(folder))
    text = updated_card(folder)
    assert text.rstrip().endswith(END) and text.count("## Results") == 1


def test_results_of_other_weights_are_refused(copied):
    (copied / "model.safetensors").write_bytes(b"others")
    with pytest.raises(
        UserError, match=r"training_results.json is not of the weights in .*model.safetensors"
    ):
        updated_card(copied)


def test_an_evaluation_of_other_weights_is_refused(copied):
    (copied / "evaluation").mkdir()
    about = {"name": "x", "sha256": "0" * 64, "parameters": 1, "dimension": 1, "max_seq_length": 1}
    found = {
        "model": about | {"files": {"model.safetensors": "0" * 64}},
        "versions": {},
        "suites": {},
        "tasks": {},
        "missing": {},
    }
    (copied / "evaluation" / "results.json").write_text(json.dumps(found))
    with pytest.raises(
        UserError, match=r"evaluation/results.json is not of the weights in .*model.safetensors"
    ):
        updated_card(copied)


def test_a_card_of_another_maker_with_results_is_left_as_it_is(copied):
    (copied / "training_results.json").unlink()
    theirs = ModelCard((copied / "README.md").read_text())
    theirs.text = theirs.text.replace(BEGIN, "").replace(END, "")
    (copied / "README.md").write_text(theirs.content)
    assert len(ModelCard(updated_card(copied)).data.eval_results) == 1
    assert updated_card(copied) == theirs.content


@pytest.mark.parametrize(
    ("loss", "twin", "family"),
    [
        ({"type": "JTCSELoss"}, True, "jtcse"),
        ({"type": "JTCSELoss", "cross_weight": 0.0}, True, "tncse"),
        ({"type": "JTCSELoss", "cross_weight": 0.0, "ictm_weight": 0.0}, True, "other"),
        ({"type": "JTCSELoss", "cross_weight": 0.0}, False, "other"),
        ({"type": "LSRNSLoss", "rank_weight": 0.0}, False, "other"),
        ({"type": "SimCSELoss"}, False, "simcse"),
        (None, False, "assembled"),
    ],
)
def test_a_family_is_that_of_the_terms_that_are_on(loss, twin, family):
    stage = StageSpec.model_validate({"name": "x", "model": {"base": "embedded"}, "loss": loss})
    assert family_of(stage, twin) == family


def test_what_cannot_be_read_is_told_by_name(copied):
    (copied / "training_results.json").write_text("{")
    with pytest.raises(
        UserError, match=r"training_results.json is damaged, or not a stage's record"
    ):
        updated_card(copied)
    (copied / "training_results.json").unlink()
    (copied / "README.md").write_text("---\n- no\n---\n")
    with pytest.raises(UserError, match=r"README.md cannot be read as a model card"):
        updated_card(copied)
    (copied / "README.md").unlink()
    with pytest.raises(UserError, match="has no model card"):
        updated_card(copied)
