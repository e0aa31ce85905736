"""A model starts as its makers shipped it, what is trained is said in a phrase, and its own scores
come first.
"""

import json

import numpy as np
import pytest
import torch
from conftest import (
    make_encoder,
    make_pairs,
    make_sentences,
    make_tokenizer,
    save_encoder,
    write_rows,
)
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from test_run import results, train

from st_jtcse import embedded
from st_jtcse.hub.card_results import TRAINING_RECORD
from st_jtcse.ownership import replace_ours
from st_jtcse.records import RunResults
from st_jtcse.reports.run_report import results_table
from st_jtcse.training.as_shipped import ShippedScores

pytestmark = pytest.mark.usefixtures("unrehearsed")

TEXTS = [*make_sentences(7, seed=9), "dog " * 60]


def save_shipped(folder, seed=1, pooling="mean", dense=True, **said):
    """A tiny model with all that a maker can ship: mean pooling, Dense, Normalize, prompts, a
    length of its own.
    """
    make_encoder(seed).save_pretrained(folder / "parts")
    make_tokenizer().save_pretrained(folder / "parts")
    encoder = Transformer(str(folder / "parts"), max_seq_length=14)
    torch.manual_seed(seed)
    modules = [
        encoder,
        Pooling(32, pooling, include_prompt=False),
        *([Dense(32, 16)] if dense else []),
        Normalize(),
    ]
    said = {
        "prompts": {"query": "red table ", "document": "old "},
        "default_prompt_name": "query",
    } | said
    model = SentenceTransformer(modules=modules, similarity_fn_name="dot", device="cpu", **said)
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


@pytest.fixture
def project(tmp_path):
    """A shipped model, a plain encoder, text and pairs; `write` makes the recipe of given stages."""
    save_shipped(tmp_path / "mine")
    save_encoder(tmp_path / "plain", 1, num_hidden_layers=2)
    (tmp_path / "text.txt").write_text("\n".join(make_sentences(24)) + "\n")
    for seed, name in enumerate(("dev", "test")):
        write_rows(tmp_path / f"{name}.jsonl", make_pairs(16, seed))
    return tmp_path


def stage(name="one", loss=None, **model):
    return {"name": name, "model": model, "loss": loss}


def write(project, *stages, **args):
    recipe = {
        "name": "tiny",
        "output_dir": str(project / "run"),
        "data": {"train": "text.txt"},
        "evaluate": {"dev": "dev.jsonl", "test": {"test": "test.jsonl"}},
        "args": {
            "max_steps": 2,
            "per_device_train_batch_size": 8,
            "use_cpu": True,
            "disable_tqdm": True,
            **args,
        },
        "stages": list(stages),
    }
    (project / "recipe.yaml").write_text(json.dumps(recipe))


def load(folder):
    return SentenceTransformer(str(folder), device="cpu")


def shown_rows(text):
    """The cells of a Markdown table's rows."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if "|" in line
    ][2:]


def test_the_embedded_backbone_comes_through_a_stage_without_a_loss_bit_for_bit(project):
    write(project, stage(base="embedded"))
    assert train(project) == 0
    shipped, saved = load(embedded.folder()), load(project / "run" / "one")
    texts = ["A man is eating.", "The sky is blue today.", "word " * 400]
    np.testing.assert_array_equal(saved.encode(texts), shipped.encode(texts))
    assert [type(module) for module in saved] == [Transformer, Pooling, Normalize]
    assert saved.max_seq_length == shipped.max_seq_length == 256
    (record,) = results(project)["stages"]
    assert record["as_shipped"] == {"embedded": record["spearman"]}
    assert record["begins_as"] == "embedded: mean pooling, normalised, as shipped"


def test_prompts_dense_and_length_come_through_too(project):
    write(project, stage(base="./mine"))
    assert train(project) == 0
    shipped, saved = load(project / "mine"), load(project / "run" / "one")
    np.testing.assert_array_equal(saved.encode(TEXTS), shipped.encode(TEXTS))
    np.testing.assert_array_equal(saved.encode_document(TEXTS), shipped.encode_document(TEXTS))
    assert np.abs(shipped.encode(TEXTS) - shipped.encode_document(TEXTS)).max() > 1e-3
    assert [type(module) for module in saved] == [Transformer, Pooling, Dense, Normalize]
    for name in ("max_seq_length", "prompts", "default_prompt_name", "similarity_fn_name"):
        assert getattr(saved, name) == getattr(shipped, name)
    assert (
        saved.max_seq_length == 14
        and saved.default_prompt_name == "query"
        and not saved[1].include_prompt
    )


def test_a_student_of_some_layers_keeps_all_that_follows_the_encoder(project):
    write(project, stage(base="./mine", layers=[0, 2]))
    assert train(project) == 0
    shipped, saved = load(project / "mine"), load(project / "run" / "one")
    assert (saved.max_seq_length, saved.prompts, saved.default_prompt_name) == (
        14,
        shipped.prompts,
        "query",
    )
    assert not saved[1].include_prompt and torch.equal(
        saved[2].linear.weight, shipped[2].linear.weight
    )
    assert saved[0].model.config.num_hidden_layers == 2
    (record,) = results(project)["stages"]
    assert record["begins_as"].endswith("as shipped, layers [0, 2]")


def test_a_model_is_trained_with_the_prompt_that_it_is_used_with(project):
    trained = stage(base="./mine", loss={"type": "SimCSELoss"})
    saved = {}
    for name, args in (
        ("own", {}),
        ("said", {"prompts": "red table "}),
        ("other", {"prompts": "old "}),
    ):
        write(project, trained, learning_rate=1e-2, **args)
        assert train(project, "--output-dir", str(project / name)) == 0
        saved[name] = load(project / name / "one").encode(TEXTS)
    np.testing.assert_array_equal(saved["own"], saved["said"])
    assert np.abs(saved["own"] - saved["other"]).max() > 1e-4


def test_a_pooling_is_changed_only_where_it_is_written_and_the_plan_says_so(project, capsys):
    twice = stage("again", base="./mine", pooling="cls", max_seq_length=8)
    stages = [
        stage(base="./mine"),
        twice,
        stage("third", base="stage:one"),
        stage("bare", base="./plain", pooling="lasttoken"),
    ]
    write(project, *stages)
    assert train(project, "--dry-run") == 0
    told = capsys.readouterr().out
    for line in (
        "one: mine: mean pooling, Dense, normalised, prompt 'red table ', as shipped",
        "again: mine: CLS state (pooling: cls), not as shipped, cut at 8 tokens",
        "third: stage:one: as that stage leaves it",
        "bare: plain: last token (pooling: lasttoken), a plain encoder",
    ):
        assert f"\n  {line}\n" in told
    assert train(project) == 0
    assert [type(module) for module in load(project / "run" / "again")] == [Transformer, Pooling]
    assert [type(module) for module in load(project / "run" / "third")] == [
        Transformer,
        Pooling,
        Dense,
        Normalize,
    ]
    assert load(project / "run" / "bare")[1].pooling_mode == "lasttoken"


def test_every_table_begins_with_the_start_models_as_shipped(project, capsys):
    trained = stage(base="./mine", pooling="cls", loss={"type": "SimCSELoss"})
    write(
        project,
        trained,
        stage("third", base="stage:one"),
        stage("bare", base="./plain", pooling="cls"),
    )
    assert train(project) == 0
    shipped = load(project / "mine")
    found = results(project)
    assert found["as_shipped"].keys() == {"mine", "plain"} and found["as_shipped"]["plain"] == {}
    own = found["as_shipped"]["mine"]
    for name in ("dev", "test"):
        pairs = [json.loads(line) for line in (project / f"{name}.jsonl").read_text().splitlines()]
        left, right = (
            shipped.encode([pair[side] for pair in pairs]) for side in ("sentence1", "sentence2")
        )
        expected = spearman((left * right).sum(axis=1), np.array([pair["score"] for pair in pairs]))
        assert own[name] == pytest.approx(100 * expected, abs=0.01)
    assert [record["as_shipped"] for record in found["stages"]] == [
        {"mine": own},
        {"mine": own},
        {"plain": {}},
    ]
    shown = [number(own[name]) for name in ("dev", "test")]
    assert "shipped" in capsys.readouterr().out
    rows = shown_rows(results_table(RunResults.model_validate(found)).markdown())
    assert [row[0] for row in rows] == [
        "mine, as shipped",
        "plain, a plain encoder",
        "one",
        "third",
        "bare",
    ]
    assert rows[0][-2:] == shown and rows[1][-2:] == ["-", "-"]
    for name, expected in (
        ("one", ["mine, as shipped", *shown]),
        ("bare", ["plain, a plain encoder", "-", "-"]),
    ):
        card = (project / "run" / name / "README.md").read_text()
        assert (
            shown_rows(card.partition("<!-- results -->")[2].partition("<!-- end")[0])[0]
            == expected
        )
    assert (
        "from mine: CLS state (pooling: cls), not as shipped."
        in (project / "run" / "one" / "README.md").read_text()
    )


def number(value):
    return f"{value:.2f}"


def spearman(first, second):
    """Spearman's correlation, ties by their mean rank."""
    means = [
        np.array([(values < each).sum() + ((values == each).sum() - 1) / 2 for each in values])
        for values in (first, second)
    ]
    return np.corrcoef(*means)[0, 1]


def test_folders_of_one_name_are_told_apart(project):
    for seed, place in enumerate(("x", "y")):
        save_shipped(project / place / "model", seed)
    write(project, stage(base="./x/model"), stage("two", base="./y/model"))
    assert train(project) == 0
    one, two = results(project)["stages"]
    assert one["as_shipped"] == {"x/model": one["spearman"]} and two["as_shipped"] == {
        "y/model": two["spearman"]
    }
    assert one["spearman"] != two["spearman"]


def test_sets_of_one_name_and_other_pairs_are_not_mixed_up(project):
    other = stage("two", base="./mine") | {"evaluate": {"dev": "test.jsonl"}}
    write(project, stage(base="./mine"), other)
    assert train(project) == 0
    one, two = results(project)["stages"]
    assert (
        two["as_shipped"]["mine"] == {"dev": one["as_shipped"]["mine"]["test"]} == two["spearman"]
    )


def test_a_run_that_is_gone_on_with_keeps_what_it_knows(project):
    write(project, stage(base="./mine"), stage("two", base="./mine", pooling="cls"))
    assert train(project, "--stage", "one") == 0
    path = project / "run" / "results.json"
    told = json.loads(path.read_text())
    told["as_shipped"]["mine"]["dev"] = 12.5  # As no computation would give it.
    told["stages"] = []
    replace_ours(path, json.dumps(told))
    assert train(project, "--resume") == 0
    assert (
        json.loads((project / "run" / "two" / TRAINING_RECORD).read_text())["as_shipped"]["mine"][
            "dev"
        ]
        == 12.5
    )


def test_a_model_whose_code_may_not_run_has_no_row_and_stops_no_run(project, caplog):
    listing = json.loads((project / "mine" / "modules.json").read_text())
    listing[2]["type"] = "my_package.Dense"
    (project / "mine" / "modules.json").write_text(json.dumps(listing))
    write(project, stage(base="./mine", pooling="mean"))
    assert train(project) == 0
    assert results(project)["as_shipped"] == {}
    assert (
        "the table lacks the row 'as shipped': The model" in caplog.text
        and "my_package.Dense" in caplog.text
    )


def twin(*towers, **model):
    return stage("twin", towers=[f"./{name}" for name in towers], random_pooler=True, **model)


def test_a_twin_of_shipped_towers_is_their_sum_with_prompts_and_length(project, capsys):
    for seed, name in enumerate(("x", "y")):
        save_shipped(project / name, seed, dense=False)
    write(project, twin("x", "y"), stage("again", base="stage:twin"))
    assert train(project, "--dry-run") == 0
    told = "x and y: mean pooling, normalised, prompt 'red table ', as shipped"
    assert f"\n  twin: {told}\n" in capsys.readouterr().out
    assert train(project) == 0
    first, second = (load(project / name) for name in ("x", "y"))
    for name in ("twin", "again"):
        saved = load(project / "run" / name)
        summed = first.encode(TEXTS) + second.encode(TEXTS)
        expected = summed / np.linalg.norm(summed, axis=1, keepdims=True)
        np.testing.assert_allclose(saved.encode(TEXTS), expected, atol=1e-6)
        assert (saved.max_seq_length, saved.prompts, saved.default_prompt_name) == (
            14,
            first.prompts,
            "query",
        )
        assert saved.similarity_fn_name == "dot"
    one, again = results(project)["stages"]
    assert one["begins_as"] == told and one["as_shipped"].keys() == again["as_shipped"].keys() == {
        "x",
        "y",
    }
    assert again["begins_as"] == "stage:twin: as that stage leaves it"
    # The saved twin, given as a folder, is told by what its towers do.
    write(project, stage(base="./run/twin"))
    assert train(project, "--output-dir", str(project / "other")) == 0
    (record,) = results(project, "other")["stages"]
    assert record["begins_as"] == (
        "twin: mean pooling of each encoder, summed, normalised, prompt 'red table ', as shipped"
    )
    assert record["as_shipped"] == {"twin": again["spearman"]}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"pooling": "lasttoken"},
            "differ in pooling: 'mean' in the first, 'lasttoken' in the other",
        ),
        (
            {"prompts": {"query": "not "}},
            "'red table '} in the first, {'query': 'not '} in the other",
        ),
        (
            {"default_prompt_name": None},
            "differ in default_prompt_name: 'query' in the first, None in the other",
        ),
    ],
)
def test_towers_that_their_makers_had_otherwise_make_no_twin_by_themselves(
    project, capsys, changed, sentence
):
    save_shipped(project / "x", dense=False)
    save_shipped(project / "y", 2, **{"dense": False} | changed)
    write(project, twin("x", "y"))
    capsys.readouterr()
    assert train(project, "--dry-run") == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1
    assert train(project) == 2
    assert sentence in capsys.readouterr().err
    assert not (project / "run" / "twin").exists()
    # Taken alone, the encoders may be a twin.
    write(project, twin("x", "y", pooling="mean"))
    assert train(project, "--output-dir", str(project / "other")) == 0
    (record,) = results(project, "other")["stages"]
    assert record["begins_as"] == "x and y: mean pooling (pooling: mean), not as shipped"


def test_a_tower_with_a_dense_layer_is_refused(project, capsys):
    save_shipped(project / "x")
    write(project, twin("x", "mine"))
    assert train(project) == 2
    assert (
        "makes its embedding by Transformer, Pooling, Dense, Normalize" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"as_sh',
        "null",
        "[]",
        '{"as_shipped": 5}',
        '{"as_shipped": {"a": 5}}',
        '{"as_shipped": {"a": {"dev": 1}}}',
    ],
)
def test_results_that_are_damaged_are_not_taken_up(text, tmp_path):
    (tmp_path / "results.json").write_text(text)
    shipped = ShippedScores({})
    shipped.take_up(tmp_path / "results.json")
    assert not any(shipped.scores.values())
