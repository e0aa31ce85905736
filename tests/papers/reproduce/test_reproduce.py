"""st-reproduce on tiny models: cells are shared and kept, failures stand beside the rest, verdicts
follow from intervals.
"""

import json

import numpy as np
import pytest
import yaml
from conftest import make_sentences, save_encoder
from scipy.stats import spearmanr

from st_jtcse import bundled
from st_jtcse.hashing import sha256
from st_jtcse.modules import load_sentence_transformer
from st_jtcse.papers.reproduce import chains, command
from st_jtcse.papers.reproduce import items as items_of
from st_jtcse.papers.reproduce.items import Claim, Item, place_of
from st_jtcse.papers.reproduce.pictures import surface
from st_jtcse.papers.reproduce.verdicts import difference, judge, of_summaries, steadier
from st_jtcse.training import runner

ENCODER = {"name": "encoder", "loss": {"type": "SimCSELoss"}}
TWIN = {
    "name": "joint",
    "model": {"towers": ["stage:encoder", "stage:encoder"], "pooling": "cls"},
    "loss": {"type": "JTCSELoss", "cross_weight": 0.0},
}
CLAIM = {"says": "all are best", "paper": "1 -> 2", "test": ["all", "best"]}
TABLE = [
    {
        "id": "jtcse-X",
        "number": "Table X",
        "shows": "terms",
        "values": "some",
        "recipe": "tiny",
        "rows": {"all": [79.7, "joint@1"], "none": [78.3, "joint@2"]},
        "claims": [CLAIM],
    },
    {
        "id": "jtcse-XI",
        "number": "Table XI",
        "shows": "poolings",
        "values": "some",
        "recipe": "plain",
        "rows": {"CLS": [79.7, "joint"], "mean": [70.3, "joint~mean"]},
    },
    {
        "id": "jtcse-VII",
        "number": "Table VII",
        "shows": "one that cannot be",
        "values": "some",
        "recipe": "broken",
        "rows": {"one": [1.0, "encoder"]},
    },
    {
        "id": "jtcse-8",
        "number": "Fig. 8",
        "shows": "moduli",
        "values": "a picture",
        "make": "diagnosis",
        "measure": "modulus",
        "recipe": "plain",
        "rows": {"JTCSE": [None, "joint"], "JTCSE, score": [None, "joint#score"]},
    },
    {
        "id": "cosent-3",
        "number": "Fig. 3",
        "shows": "steps",
        "values": "a picture",
        "make": "convergence",
        "recipe": "plain",
        "rows": {"CoSENT": [2500, "encoder"], "MSE": [5017, "joint"]},
    },
    {
        "id": "lsrns-3",
        "number": "Table 3",
        "shows": "transfer",
        "values": "some",
        "sets": "transfer",
        "recipe": "plain",
        "rows": {"encoder": [86.22, "encoder"]},
    },
    {"id": "jtcse-1", "number": "Fig. 1", "shows": "a sketch", "drawing": True},
    {"id": "jtcse-3", "number": "Fig. 3", "shows": "Eq. 5", "values": "a", "make": "surface"},
    {
        "id": "jtcse-II",
        "number": "Table II",
        "shows": "tasks",
        "values": "some",
        "lacks": "data",
        "commands": ["st-train jtcse-bert", "st-eval runs/jtcse-bert/joint --suite sts7"],
    },
]


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Items whose small recipes are tiny ones."""
    save_encoder(tmp_path / "a", 1)
    (tmp_path / "text.txt").write_text("\n".join(make_sentences(24)) + "\n")
    left, right = make_sentences(12, seed=5), make_sentences(12, seed=6)
    rows = [
        {"sentence1": a, "sentence2": b, "score": i % 6}
        for i, (a, b) in enumerate(zip(left, right))
    ]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = {"max_steps": 2, "per_device_train_batch_size": 8, "use_cpu": True, "eval_steps": 1}
    plain = {
        "name": "plain",
        "model": {"pooling": "cls"},
        "data": {"train": str(tmp_path / "text.txt")},
        "evaluate": {
            "dev": str(tmp_path / "dev.jsonl"),
            "test": {"t": str(tmp_path / "dev.jsonl")},
        },
        "args": args | {"eval_strategy": "steps", "logging_steps": 1, "learning_rate": 1e-3},
        "stages": [ENCODER | {"model": {"base": str(tmp_path / "a"), "pooling": "cls"}}, TWIN],
    }
    tiny = plain | {"name": "tiny", "sweep": [{}, {"stages.joint.loss": [None]}]}
    broken = plain | {"name": "broken", "args": args | {"learning_rate": -1.0}}
    for recipe in (plain, tiny, broken):
        (tmp_path / f"{recipe['name']}.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    (tmp_path / "items.yaml").write_text(yaml.safe_dump(TABLE, sort_keys=False))
    known = bundled.recipes() | {
        name: tmp_path / f"{name}.yaml" for name in ("plain", "tiny", "broken")
    }
    monkeypatch.setattr(bundled, "recipes", lambda: known)
    monkeypatch.setattr(items_of, "ITEMS", tmp_path / "items.yaml")
    items_of.items.cache_clear()
    yield tmp_path
    items_of.items.cache_clear()


def run(table, *words):
    return command.main([*words, "--output-dir", str(table / "out")])


@pytest.mark.usefixtures("unrehearsed")
def test_cells_are_shared_and_kept_and_a_failure_stands_beside_the_rest(table, capsys, monkeypatch):
    assert run(table, "jtcse-X", "jtcse-XI", "jtcse-VII", "jtcse-3", "--seeds", "1..2") == 1
    told = json.loads((table / "out" / "reproduced.json").read_text())
    by_id = {item["item"]: item for item in told["items"]}
    assert {name: len(found) for name, found in by_id["jtcse-X"]["figures"].items()} == {
        "all": 2,
        "none": 2,
    }
    # One encoder and one twin of each seed serve both tables.
    runs = table / "out" / "runs"
    first, second = (
        runs / place / "seed-1" / "joint" / "model.safetensors" for place in ("tiny/01", "plain")
    )
    assert first.samefile(second)
    assert by_id["jtcse-XI"]["figures"]["CLS"] == by_id["jtcse-X"]["figures"]["all"]
    assert by_id["jtcse-XI"]["figures"]["mean"] != by_id["jtcse-XI"]["figures"]["CLS"]
    assert "learning_rate" in by_id["jtcse-VII"]["failed"]["one"]
    assert (table / "out" / "jtcse-3" / "modulus_surface.svg").is_file()
    page = (table / "out" / "index.html").read_text()
    assert "all are best" in page and "JTCSE, Table X" in page and "failed" in page
    capsys.readouterr()
    # Without --resume nothing is touched; with it nothing is trained again.
    before = sha256(first)
    assert run(table, "jtcse-X") == 2
    assert "holds results already. Go on with --resume" in capsys.readouterr().err
    assert run(table, "jtcse-X", "--size", "paper", "--resume") == 2
    monkeypatch.setattr(runner, "run_stage", lambda *_: pytest.fail("trained again"))
    assert run(table, "jtcse-X", "--seeds", "1..2", "--resume") == 0
    assert sha256(first) == before


def _senteval(folder):
    """Write two sets of SentEval: graded pairs, and labelled texts."""
    (folder / "sts").mkdir(parents=True)
    (folder / "transfer").mkdir()
    left, right = make_sentences(10, seed=7), make_sentences(10, seed=8)
    pairs = [
        {"sentence1": one, "sentence2": two, "score": at / 2}
        for at, (one, two) in enumerate(zip(left, right))
    ]
    texts = [{"text": text, "label": at % 2} for at, text in enumerate(make_sentences(60, seed=9))]
    for name, rows in (("sts/stsb.test", pairs), ("transfer/cr", texts)):
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return pairs


@pytest.mark.usefixtures("unrehearsed")
def test_rows_are_scored_on_the_sets_of_a_folder(table, capsys):
    pairs = _senteval(table / "sets")
    asked = ["jtcse-XI", "lsrns-3", "--seeds", "1..1"]
    assert run(table, *asked) == 0
    assert "lsrns-3: its sets are not bundled; --data names" in capsys.readouterr().out
    assert run(table, *asked, "--resume", "--data", str(table / "sets")) == 0
    told = json.loads((table / "out" / "reproduced.json").read_text())
    poolings, transfer = (item["figures"] for item in told["items"])
    twin = load_sentence_transformer(table / "out" / "runs" / "plain" / "seed-1" / "joint")
    one, two = (
        twin.encode([pair[column] for pair in pairs]).astype(float)
        for column in ("sentence1", "sentence2")
    )
    cosines = (one * two).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1)
    by_hand = 100 * spearmanr(cosines, [pair["score"] for pair in pairs]).statistic
    assert poolings["CLS"] == [pytest.approx(by_hand)]
    assert poolings["mean"] != poolings["CLS"]
    assert 0 <= transfer["encoder"][0] <= 100
    assert "for scores CR" in (table / "out" / "index.html").read_text()
    # Each model's results are kept: three files for two poolings and a transfer set.
    assert len(list((table / "out" / "results").glob("*/results.json"))) == 3


def test_bad_input_is_told_before_anything_is_computed(table, capsys, monkeypatch):
    assert run(table, "jtcse-XX") == 2
    assert "found 'jtcse-XX'. Did you mean 'jtcse-X'?" in capsys.readouterr().err
    assert run(table, "jtcse-1") == 2
    told = capsys.readouterr()
    assert "jtcse-1: a drawing without data" in told.out
    assert "expected a table or figure that it can make" in told.err
    monkeypatch.setattr(chains, "_hub_answers", lambda: False)
    assert run(table, "jtcse-II", "--size", "paper") == 2
    # Four trained stages, two languages, and BERT.
    assert "about 16 hours of one GPU and 0 GB of downloads" in capsys.readouterr().err
    (table / "empty").mkdir()
    assert run(table, "jtcse-X", "--data", str(table / "empty")) == 2
    assert "expected a folder with sets of SentEval" in capsys.readouterr().err
    assert run(table, "jtcse-II", "--size", "paper", "--data", str(table)) == 2
    assert "use it with mini" in capsys.readouterr().err
    assert not (table / "out").exists()
    with pytest.raises(SystemExit):
        run(table, "--seeds", "3..1")


def test_the_list_tells_states(table, capsys):
    assert run(table, "--list") == 0
    assert "6 mini, 1 mini, --data, 1 drawing, 1 Hub and GPU" in capsys.readouterr().out


def test_a_claim_follows_from_the_interval_over_seeds():
    assert difference([2.0, 2.1, 2.2], [1.0, 1.2, 1.1]).verdict == "holds"
    assert difference([1.0, 1.2, 1.1], [2.0, 2.1, 2.2]).verdict == "does not"
    assert difference([1.0, 3.0, 2.0], [1.5, 1.4, 1.6]).verdict == "open"
    assert difference([5.0], [1.0]) == ("open", "+4.00, one seed")
    # Welch's interval by hand: 2.776 * sqrt(2 * 0.3^2 / 3) = 0.68, with four degrees of freedom.
    assert of_summaries((80.0, 0.3, 79.0, 0.3)) == ("holds", "+1.00 ± 0.68")
    assert of_summaries((80.0, 0.3, 79.5, 0.3)).verdict == "open"
    assert steadier(0.1, 2.0, 3).verdict == "holds" and steadier(0.2, 0.3, 3).verdict == "open"
    best = Claim.model_validate(CLAIM)
    rows = {"all": [2.0, 2.1, 2.2], "none": [1.0, 1.2, 1.1], "one": [3.0, 3.1, 3.3]}
    assert judge(best, rows).verdict == "does not"
    assert judge(best, {"all": rows["all"], "none": rows["none"]}).verdict == "holds"
    assert judge(best, {"none": rows["none"]}) is None
    of_two = Claim(says="better than none", paper="-", test=("all", "best", "none"))
    assert judge(of_two, rows).verdict == "holds"
    # A gain of 0.1 beside one of 1.0.
    little = Claim(says="adds little", paper="-", gains=("A with", "A", "<", "B with", "B"))
    grown = {name: [value + 0.1 for value in found] for name, found in rows.items()}
    pairs = {"A with": grown["none"], "A": rows["none"], "B with": rows["all"], "B": rows["none"]}
    assert judge(little, pairs).verdict == "holds"
    swapped = {
        "A with": pairs["B with"],
        "A": pairs["B"],
        "B with": pairs["A with"],
        "B": pairs["A"],
    }
    assert judge(little, swapped).verdict == "does not"


def test_a_place_says_recipe_stage_point_and_pooling():
    whole = "tncse-mini", "joint", 3, "mean", "modulus"
    assert place_of("tncse-mini/joint@3~mean#modulus", "jtcse-mini") == whole
    assert place_of("joint", "jtcse-mini") == ("jtcse-mini", "joint", None, None, None)
    with pytest.raises(ValueError, match="is not there"):
        Item.model_validate(TABLE[0] | {"claims": [CLAIM | {"test": ["others", "best"]}]})


def test_the_surface_is_least_where_modulus_and_direction_are_equal():
    k, t, values = surface()
    at = np.unravel_index(values.argmin(), values.shape)
    assert values[at] == 0 and (k[at], t[at]) == (1, 1)
    # Orthogonal vectors of one length: sqrt(2) / 2.
    (at,) = np.argwhere((k == 1) & (t == 0))
    assert values[tuple(at)] == pytest.approx(2**0.5 / 2)


def test_commands_of_the_papers_size_go_on_in_their_folder(tmp_path):
    train = chains.words_of("st-train jtcse-bert", tmp_path)
    assert train[-2:] == ["jtcse-bert", "--resume"]
    pooled = chains.words_of("st-eval runs/a/joint --suite sts7 --pooling mean", tmp_path)
    assert pooled[-2:] == ["--output-dir", "results/runs-a-joint-mean/sts7"]
    assert chains.words_of("st-train --show tncse-bert", tmp_path)[-2:] == ["--show", "tncse-bert"]


def test_a_command_that_fails_is_told_and_the_next_one_runs(tmp_path):
    commands = ["st-train --show no-such-recipe", "st-eval --list"]
    failed = chains.run_commands(commands, tmp_path)
    assert failed == {commands[0]: "ended with status 2"}


@pytest.mark.usefixtures("unrehearsed")
def test_figures_are_drawn_and_steps_counted(table):
    assert run(table, "jtcse-8", "cosent-3", "--seeds", "7") == 0
    told = json.loads((table / "out" / "reproduced.json").read_text())["items"]
    looked, steps = (item["figures"] for item in told)
    assert looked["JTCSE"][0] > 1 and -100 <= looked["JTCSE, score"][0] <= 100
    # Of two evaluations and the start, in steps.
    assert {found[0] for found in steps.values()} <= {0, 1, 2}
    names = {path.name for path in (table / "out" / "jtcse-8").iterdir()}
    assert {"index.html", "modulus.svg", "attention_maps.png", "diagnostics.json"} <= names
