"""Plain sentences in `evaluate.general`: a stage gives up what moves too many of their neighbours."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import WORDS, make_tokenizer
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from test_maps import BEST, MAPPED, START, of_topics, text, write  # noqa: F401  # text is a fixture
from test_resume_checks import WITHOUT_DEV, cut
from test_run import project, refusal, results, train  # noqa: F401  # project is a fixture

from st_jtcse.data import Source
from st_jtcse.evaluation.kept_neighbours import beside, sentences_set
from st_jtcse.evaluation.own_sets import OwnSetEvaluator
from st_jtcse.recipe.data_blocks import EvaluateSpec
from st_jtcse.recipe.schema import ModelSpec
from st_jtcse.training.limits import limits_of
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.stage_inputs import Inputs
from st_jtcse.training.stage_saving import keep_general

# Every pair of some words, of each kind other ones.
KINDS = {
    name: [f"{one} {two}" for one, two in combinations(own, 2)]
    for name, own in (("harmed", WORDS[:8]), ("spared", WORDS[8:16]))
}
ENCODER = ["--stage", "encoder"]


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """Sets of two kinds of words, and tables of the words' vectors before and after those of one
    kind moved.
    """
    folder = tmp_path_factory.mktemp("kinds")
    tokenizer = make_tokenizer().backend_tokenizer
    ids = {word: tokenizer.encode(word, add_special_tokens=False).ids[0] for word in WORDS}
    before = torch.randn(tokenizer.get_vocab_size(), 6, generator=torch.Generator().manual_seed(3))
    after = before.clone()
    rows = [ids[word] for word in WORDS[:8]]
    after[rows] = torch.randn(8, 6, generator=torch.Generator().manual_seed(4))

    def model(weights):
        table = StaticEmbedding(tokenizer, embedding_weights=weights.clone())
        return SentenceTransformer(modules=[table], device="cpu")

    sets = {}
    for name, kind in KINDS.items():
        (folder / f"{name}.txt").write_text("\n".join(kind) + "\n")
        sets[name] = beside(sentences_set(Source(folder / f"{name}.txt"), name), model(before))
    return model, before, after, rows, sets


def kept_by_hand(before, after):
    """The percentage of the ten nearest pairs of words that stay, by the words' vectors."""

    def nearest(words):
        vectors = np.array([(one + two) / 2 for one, two in combinations(words, 2)])
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = unit @ unit.T - 9 * np.eye(len(unit))
        return [set(row[-10:]) for row in cosines.argsort(axis=1).tolist()]

    both = zip(nearest(before.double().numpy()), nearest(after.double().numpy()))
    return 10 * np.mean([len(first & second) for first, second in both])


def held(moved, names, least, **more):
    model, before, after, _, sets = moved
    evaluate = {"general": dict.fromkeys(names, "x.txt"), "kept_neighbours": least, **more}
    spec = EvaluateSpec.model_validate(evaluate)
    evaluators = {name: OwnSetEvaluator(own, name) for name, own in sets.items()}
    kind, trained = kind_of(ModelSpec(base="x")), model(after)
    found = {"spearman_start": dict.fromkeys(sets, 100.0)}
    limits, inputs = limits_of(spec, evaluators), Inputs(None, evaluators, {})
    told = keep_general(limits, trained, model(before), kind, inputs, found)
    return told, trained[0].embedding.weight.detach()


def test_one_kind_alone_decides_how_much_of_the_training_is_kept(moved, caplog):
    _, before, after, rows, _ = moved
    kept = {
        share: kept_by_hand(before[rows], torch.lerp(before[rows], after[rows], share))
        for share in (1.0, 0.8, 0.6, 0.4, 0.2)
    }
    assert kept[1.0] < 70 < kept[0.2]
    for least in (70, kept[0.4]):
        # A share that is met exactly is allowed.
        share = max(share for share, found in kept.items() if found >= least - 1e-9)
        told, weights = held(moved, ["harmed", "spared"], least - 1e-4)
        assert told == {"trained_share": share} and share < 1
        torch.testing.assert_close(weights, torch.lerp(before, after, share))
    assert "so that no general set keeps fewer than" in caplog.text
    told, weights = held(moved, ["harmed", "spared"], 100)
    assert told == {"trained_share": 0.0, "best_step": 0} and torch.equal(weights, before)
    # The other kind, and retention, say nothing against it.
    for names, least in ((["spared"], 100), (["harmed", "spared"], 0)):
        told, weights = held(moved, names, least, retention=0.0)
        assert told == {"trained_share": 1.0} and torch.equal(weights, after)


def plain(folder, name="plain.txt", seed=11):
    texts = list(dict.fromkeys(of_topics(40, seed=seed)[0]))
    (folder / name).write_text("\n".join(texts) + "\n")


def bound(least):
    block = f"evaluate={{general: {{own: plain.txt}}, kept_neighbours: {least}}}"
    return [*WITHOUT_DEV, "--set", block, "--set", "args.learning_rate=0.01"]


def page_of(folder):
    return Path(folder, "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("unrehearsed")
def test_a_stage_is_bounded_told_and_resumed_to_the_same_bytes(project, capsys, monkeypatch):  # noqa: F811
    monkeypatch.chdir(project)
    plain(project)
    found = {}
    for least in (0, 85, 100):
        folder = f"least-{least}"
        assert train(project, *ENCODER, *bound(least), "--output-dir", folder) == 0
        (found[least],) = results(project, folder)["stages"]
        out = capsys.readouterr().out
        assert (
            f"encoder keeps {found[least]['spearman']['own']:.2f} of 100 neighbours in own" in out
        )
        assert f"(at least {least})" in out
        # The page has all scores, the terminal's table those without a line of their own.
        assert "kept_neighbours" not in out and "kept_neighbours" in page_of(folder)
    free, some, nothing = found.values()
    assert free["metrics"]["own"] == "kept_neighbours" and free["kept_neighbours"] == 0
    assert {record["spearman_start"]["own"] for record in found.values()} == {100.0}
    assert free["spearman"]["own"] < 85 <= some["spearman"]["own"]
    assert free["trained_share"] == 1 > some["trained_share"]
    assert nothing["trained_share"] == nothing["best_step"] == 0
    assert nothing["spearman"] == nothing["spearman_start"]
    assert all("own" not in scores for scores in some["as_shipped"].values())
    cut(project, *bound(85), step=4)
    assert train(project, *ENCODER, *bound(85), "--resume") == 0
    (resumed,) = results(project)["stages"]
    for key in ("weights_sha256", "spearman", "trained_share", "data_sha256"):
        assert resumed[key] == some[key], key


def test_maps_are_mixed_and_candidates_refused_because_of_one_kind(text, caplog):  # noqa: F811
    plain(text)
    kept = {}
    for least in (0, 90, 100):
        evaluate = {"general": {"kind": "plain.txt"}, "kept_neighbours": least}
        write(text, [START, {**MAPPED, "evaluate": evaluate}])
        assert train(text, "--output-dir", str(text / f"run-{least}")) == 0
        kept[least] = results(text, f"run-{least}")["stages"][1]
    assert kept[0]["maps"]["share"] == 1 and kept[0]["spearman"]["kind"] < 90
    assert 0 < kept[90]["maps"]["share"] < 1 and kept[90]["spearman"]["kind"] >= 90
    assert kept[100]["maps"]["chosen"] == "" and kept[100]["spearman"]["kind"] == 100
    own = {"dev": "labelled.jsonl", "general": {"kind": "plain.txt"}, "kept_neighbours": 90}
    write(text, [START, {**MAPPED, "evaluate": {}}, {**BEST, "evaluate": own}])
    with caplog.at_level("INFO"):
        assert train(text) == 0
    best = results(text)["stages"][2]
    assert best["candidates"]["chosen"] == "start" and best["kept_neighbours"] == 90
    assert "(loses too much of kind)" in caplog.text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ("{kept_neighbours: 80}", "expected 'general' beside 'kept_neighbours', found none."),
        ("{general: {a: plain.txt}, kept_neighbours: 101}", "evaluate.kept_neighbours: expected"),
        ("{general: {a: few.txt}}", "few.txt holds 3 sentences, and whether each keeps its 10"),
        ("{test: {a: plain.txt}}", "sets need columns, found a text file; give .jsonl"),
    ],
)
def test_what_does_not_go_is_told_in_a_sentence(project, capsys, monkeypatch, changes, told):  # noqa: F811
    monkeypatch.chdir(project)
    plain(project)
    (project / "few.txt").write_text("a dog\na cat\na bird\n")
    assert told in refusal(project, capsys, *ENCODER, "--set", f"evaluate={changes}")


def test_graded_pairs_in_general_lose_points_as_before(project, capsys, monkeypatch):  # noqa: F811
    monkeypatch.chdir(project)
    block = "{general: {pairs: test.jsonl}, kept_neighbours: 100, retention: 100}"
    options = [*ENCODER, "--set", f"evaluate={block}", "--set", "args.eval_strategy=no"]
    assert train(project, *options) == 0
    (found,) = results(project)["stages"]
    assert found["trained_share"] == 1 and "kept_neighbours" not in found
    assert "of 100 neighbours" not in capsys.readouterr().out
