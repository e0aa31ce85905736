"""A recipe's sets may be of any kind, by their columns; a run ends with a verdict on each test set."""

import json

import pytest
from conftest import make_labelled, make_pairs, make_sentences, write_rows
from counted_run import train_counted
from processes import run_two
from rich.console import Console
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from test_as_shipped import load, save_shipped, stage, write
from test_run import results, train

from st_jtcse.cli import console
from st_jtcse.data import Source
from st_jtcse.evaluation import OwnSetEvaluator, load_own_set
from st_jtcse.evaluation.verdict import WHOLE, verdicts
from st_jtcse.papers.cli import convergence
from st_jtcse.records import RunResults
from st_jtcse.reports.run_report import results_table

TEXTS = list(dict.fromkeys(make_sentences(80, seed=4)))[:40]
# Where the answer has the same words, a model of random weights does well.
SETS = {
    "pairs": make_pairs(16, 3),
    "dups": [
        {
            "sentence1": text,
            "sentence2": f"{text} dog" if at % 2 else TEXTS[at - 1],
            "label": at % 2,
        }
        for at, text in enumerate(TEXTS)
    ],
    "intents": [
        {"text": text, "label": ("dog", "cat", "red")[at % 3]} for at, text in enumerate(TEXTS)
    ],
    "faq": [{"query": text, "relevant": f"{text} dog"} for text in TEXTS],
    "odd one": [
        {"anchor": text, "positive": f"{text} dog", "negative": TEXTS[at - 1]}
        for at, text in enumerate(TEXTS)
    ],
}
METRICS = {
    "pairs": "spearman_cosine",
    "dups": "cosine_ap",
    "intents": "labels",
    "faq": "ndcg@10",
    "odd one": "cosine_accuracy",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A shipped model, text, and a set of each kind."""
    folder = tmp_path_factory.mktemp("sets")
    save_shipped(folder / "mine")
    (folder / "text.txt").write_text("\n".join(make_sentences(24)) + "\n")
    for name, rows in SETS.items():
        write_rows(folder / f"{name}.jsonl", rows)
    return folder


def evaluate(*tests, dev=None):
    return {"dev": dev and f"{dev}.jsonl", "test": {name: f"{name}.jsonl" for name in tests}}


@pytest.fixture(scope="module")
def finished(project):
    """A run of two stages whose start, which labelled texts choose, is spoilt by its training."""
    args = {"learning_rate": 1e-2, "eval_strategy": "steps", "eval_steps": 1, "logging_steps": 1}
    first = stage(base="./mine", loss={"type": "SimCSELoss"}) | {
        "evaluate": evaluate("pairs", dev="intents")
    }
    last = stage("two", {"type": "SimCSELoss"}, base="stage:one") | {
        "evaluate": evaluate(*SETS),
        "args": {"learning_rate": 0.1, "eval_strategy": "no"},
    }
    write(project, first, last, **args)
    with pytest.MonkeyPatch.context() as patched:
        shown = Console(force_terminal=True, color_system="standard", width=500, record=True)
        patched.setattr(console, "out", shown)
        assert train(project) == 0
    return results(project), shown.export_text(styles=True)


def own(project, name):
    return load_own_set(Source(project / f"{name}.jsonl"), name)


def evaluator(project, name):
    """Ours; of graded pairs Sentence-Transformers'."""
    if name != "pairs":
        return OwnSetEvaluator(own(project, name))
    columns = [[row[key] for row in SETS["pairs"]] for key in ("sentence1", "sentence2", "score")]
    return EmbeddingSimilarityEvaluator(
        *columns, name="pairs", main_similarity="cosine", batch_size=64
    )


def test_each_set_is_scored_by_what_its_columns_say(project, finished):
    record = finished[0]["stages"][1]
    assert record["metrics"] == METRICS
    for scores, model in ((record["spearman"], "run/two"), (record["as_shipped"]["mine"], "mine")):
        for name in SETS:
            measured = evaluator(project, name)(load(project / model))[f"{name}_{METRICS[name]}"]
            assert scores[name] == round(100 * measured, 4), name


def test_labelled_texts_choose_the_checkpoint(finished):
    record = finished[0]["stages"][0]
    found = [entry["eval_dev_labels"] for entry in record["log"] if "eval_dev_labels" in entry]
    assert len(found) == 2 and len(set(found)) == 2
    assert record["best_dev"] == pytest.approx(100 * max(found), abs=1e-4)
    assert record["spearman"]["dev"] == max(record["best_dev"], record["spearman_start"]["dev"])


def test_tables_and_cards_name_the_measure_beside_the_set(project, finished, capsys):
    others = "dups: cosine_ap, intents: labels, faq: ndcg@10, odd one: cosine_accuracy"
    title = f"tiny, seed 42: Spearman x 100 (dev: labels, {others}), start -> trained"
    assert results_table(RunResults.model_validate(finished[0])).title == title
    card = (project / "run" / "two" / "README.md").read_text()
    assert f"\nSpearman correlation x 100 ({others}).\n" in card
    assert "\n    - type: cosine_ap\n" in card and "\n    - type: spearmanr\n" in card
    assert convergence.main([str(project / "run"), "--output-dir", str(project / "report")]) == 0
    assert "on dev; Spearman x 100 (dev: labels) of the saved" in " ".join(
        capsys.readouterr().out.split()
    )
    assert "<!-- labels x 100 on dev -->" in (project / "report" / "convergence.svg").read_text()


def test_a_run_ends_with_the_verdicts_on_its_last_model_beside_the_first_as_shipped(
    project, finished
):
    told, shown = finished
    expected = verdicts(
        load(project / "mine"),
        load(project / "run/two"),
        {name: own(project, name) for name in SETS},
    )
    assert told["verdicts"] == [verdict.as_record().plain() for verdict in expected]
    assert told["verdicts"] == told["stages"][1]["verdicts"] and told["stages"][0]["verdicts"] == []
    assert f"Next: st-eval {project / 'mine'} {project / 'run'}/" in shown
    assert [one["set"] for one in told["verdicts"]] == [*SETS, WHOLE]
    card = (project / "run" / "two" / "README.md").read_text()
    worse = [one["sentence"] for one in told["verdicts"] if one["verdict"] == "worse"]
    assert worse, "the example spoils nothing; choose another rate"
    for one in told["verdicts"]:
        sentence = one["sentence"]
        assert (f"\x1b[1;31m{sentence}" in shown) == (sentence in worse) and sentence in shown
        assert f"\n- **{sentence}**\n" in card if sentence in worse else f"\n- {sentence}\n" in card


def test_a_finished_run_tells_its_verdicts_again_without_the_start(project, finished, capsys):
    weights = project / "mine" / "model.safetensors"
    kept = weights.rename(project / "kept")
    try:
        assert train(project, "--resume") == 0
    finally:
        kept.rename(weights)
    assert results(project)["verdicts"] == finished[0]["verdicts"]
    assert finished[0]["verdicts"][-1]["sentence"] in " ".join(capsys.readouterr().out.split())


def test_no_verdict_without_one_shipped_start_or_without_a_test_set(project, tmp_path):
    save_shipped(project / "other", seed=2)
    dev_only = {"evaluate": evaluate(dev="dups")}
    cases = {
        "two starts": [stage(members=[{"model": "./mine"}, {"model": "./other"}])],
        "no test set of the last stage": [
            stage(base="./mine"),
            stage("two", base="./mine") | dev_only,
        ],
        "a cross-encoder after it": [
            stage(base="./mine"),
            stage("two", cross_encoder="./mine/parts"),
        ],
    }
    found = {}
    for name, stages in cases.items():
        write(project, *({"evaluate": evaluate("pairs")} | one for one in stages))
        assert train(project, "--output-dir", str(tmp_path / name)) == 0
        found[name] = json.loads((tmp_path / name / "results.json").read_text())["verdicts"]
    (equal,) = found.pop("a cross-encoder after it")
    assert (equal["set"], equal["verdict"], equal["low"], equal["high"]) == ("pairs", "equal", 0, 0)
    assert list(found.values()) == [[], []]


def test_two_processes_share_the_scores_of_the_saved_model_and_have_the_bytes_of_one(tmp_path):
    project = tmp_path
    save_shipped(project / "mine")
    (project / "text.txt").write_text("\n".join(make_sentences(24)) + "\n")
    write_rows(project / "many pairs.jsonl", make_pairs(200, 5))
    write_rows(project / "many kinds.jsonl", make_labelled(200, 6, ("a", "b", "c")))
    sets = evaluate("many kinds", "many pairs", dev="many pairs")
    write(project, stage(base="./mine", pooling="cls") | {"evaluate": sets})
    run_two(train_counted, str(project), folder=project)
    first, second = (json.loads((project / f"encoded-{rank}").read_text()) for rank in range(2))
    together = (project / "run").rename(project / "together")
    assert train(project) == 0
    (alone,), card = results(project)["stages"], (project / "run/one/README.md").read_text()
    (found,) = json.loads((together / "results.json").read_text())["stages"]
    for record in (alone, found):
        record.pop("seconds"), record.pop("environment")
    assert found == alone
    told = (together / "one" / "README.md").read_text()
    assert told.replace("processes 2.", "processes 1.") == card
    assert len(found["verdicts"]) == 3 and set(found["spearman"]) == {"dev", *sets["test"]}
    # The start as shipped and a few pairs are the first's alone; of the start's scores, the saved
    # model's, and both sides of the verdict each encodes whole batches of 64.
    # Of dev, the same test set and the labels, twice as they are shared, and twice for the verdict.
    shared = 2 * (4 * 64 + 64) + 2 * (2 * 64 + 64)
    assert shared <= second < shared + 64 < first
