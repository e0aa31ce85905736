"""`maps` and `candidates` in a recipe: layers fitted in closed form, and contests without labels."""

import json
import random

import numpy as np
import pytest
from conftest import WORDS, save_encoder
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from test_run import refusal, results, train

from st_jtcse.data import Source, hold_out, load_sentences
from st_jtcse.data.fitted_maps import Centred, Drawn, apply_maps, fit_maps, held_in_place
from st_jtcse.modules import load_sentence_transformer
from st_jtcse.modules.closed_forms import unit_rows
from st_jtcse.recipe.yaml_source import dump
from st_jtcse.records import RunResults
from st_jtcse.training.run_results import best_stage

TOPICS = [WORDS[at::5] for at in range(5)]
START = {"name": "start", "model": {"base": "./a", "pooling": "mean"}, "loss": None, "evaluate": {}}
MAPPED = {
    "name": "mapped",
    "model": {"base": "stage:start"},
    "loss": None,
    "maps": {"ways": [["centred", {"drawn": {"count": 5, "weight": 0.5}}]], "normalize": True},
}
BEST = {
    "name": "best",
    "model": {"base": "stage:start"},
    "loss": None,
    "candidates": ["stage:mapped"],
}


def of_topics(count, seed=0):
    """Sentences that take their words from one of five topics, and the topics' numbers."""
    draw = random.Random(seed)
    topics = [draw.randrange(5) for _ in range(count)]
    return [" ".join(draw.choices(TOPICS[topic], k=12)) for topic in topics], topics


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A folder with an encoder, a text that has topics, labelled and graded sets, and a writer of
    recipes.
    """
    monkeypatch.chdir(tmp_path)
    save_encoder(tmp_path / "a", 14, num_hidden_layers=1)
    sentences = list(dict.fromkeys(of_topics(220)[0]))
    (tmp_path / "text.txt").write_text("\n".join(sentences) + "\n")
    (tmp_path / "general.txt").write_text("\n".join(of_topics(40, seed=3)[0]) + "\n")
    texts, topics = of_topics(60, seed=1)
    rows = [{"text": text, "label": str(topic)} for text, topic in zip(texts, topics)]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write(tmp_path, [START, MAPPED])
    return tmp_path


def write(folder, stages, **keys):
    recipe = {
        "name": "tiny",
        "seed": 7,
        "output_dir": str(folder / "run"),
        "cache_dir": str(folder / "cache"),
        "data": {"train": "text.txt"},
        "evaluate": {"dev": "unlabelled", "test": {"own": "labelled.jsonl"}},
        "args": {"use_cpu": True, "disable_tqdm": True},
        "stages": stages,
        **keys,
    }
    (folder / "recipe.yaml").write_text(dump(recipe))


def with_maps(**keys):
    return {**MAPPED, "maps": {**MAPPED["maps"], **keys}}


def test_maps_are_fitted_on_what_is_not_held_out_and_load_anywhere(text):
    write(text, [START, {**with_maps(), "evaluate": {"dev": "labelled.jsonl"}}])
    assert train(text) == 0
    start, mapped = (SentenceTransformer(str(text / "run" / name)) for name in ("start", "mapped"))
    new = list(mapped)[len(start) :]
    assert {type(module) for module in new} == {Dense, Normalize}
    sentences = load_sentences([Source(text / "text.txt")]).dataset["sentence"][:]
    vectors = start.encode(sentences)
    expected = apply_maps(fit_maps(vectors, [Centred(), Drawn(5, 0.5)]), vectors)
    np.testing.assert_allclose(mapped.encode(sentences), expected, atol=2e-5)
    found = results(text)["stages"][1]
    assert found["maps"]["chosen"] == "centred, drawn 5" and found["steps"] == 0
    scores = {entry["name"]: entry["dev"] for entry in found["maps"]["entries"]}
    # What is compared are the vectors, and what is scored is the saved model.
    assert scores["start"] == pytest.approx(found["spearman_start"]["dev"], abs=1e-3)
    assert scores["centred, drawn 5"] == pytest.approx(found["spearman"]["dev"], abs=1e-3)
    assert "linear maps (centred, drawn 5)" in (text / "run" / "mapped" / "README.md").read_text()


def test_without_labels_the_agreement_on_held_out_sentences_chooses(text):
    ways = [["centred"], ["centred", {"drawn": {"count": 5, "weight": 0.5}}], [{"axes": -0.5}]]
    write(text, [START, with_maps(ways=ways), BEST])
    assert train(text) == 0
    _, mapped, best = results(text)["stages"]
    entries = mapped["maps"]["entries"]
    scores = {entry["name"]: entry["dev"] for entry in entries}
    assert list(scores) == ["start", "centred", "centred, drawn 5", "axes -0.5"]
    assert mapped["maps"]["chosen"] == max(scores, key=scores.get) == "centred, drawn 5"
    assert mapped["metrics"]["dev"] == "shared_neighbours"
    kept, held = hold_out(load_sentences([Source(text / "text.txt")]))
    assert mapped["data_sha256"]["train"] == kept.sha256
    assert mapped["data_sha256"]["dev"] == held.sha256
    assert best["candidates"]["chosen"] == "mapped"
    assert best["weights_sha256"] == mapped["weights_sha256"]
    # Each stage compares with a reference of its own, so the last one counts, not the highest.
    run = results(text)
    run["stages"][1]["spearman"]["dev"] = 1 + run["stages"][2]["spearman"]["dev"]
    assert best_stage(RunResults.model_validate(run)) == "best"
    for stage in run["stages"]:
        stage["metrics"] = {}
    assert best_stage(RunResults.model_validate(run)) == "mapped"
    # Sentences were encoded once: the mapped model has the start's encoder.
    assert len(list((text / "cache").glob("vectors-*.arrow"))) == 2


def without_topics(text):
    """Replace the text by one in which no sentences belong together."""
    sentences = random.Random(0).sample([" ".join(WORDS[a : a + 4]) for a in range(len(WORDS))], 8)
    lines = [
        f"{one} {two} {three}" for one in sentences for two in sentences for three in sentences
    ]
    (text / "text.txt").write_text("\n".join(lines[:200]) + "\n")


def test_the_start_stays_where_nothing_is_better(text):
    without_topics(text)
    write(text, [START, with_maps(ways=[[{"axes": -0.5}]]), BEST])
    assert train(text) == 0
    start, mapped, best = results(text)["stages"]
    assert mapped["maps"]["chosen"] == best["candidates"]["chosen"] == "start"
    assert start["weights_sha256"] == mapped["weights_sha256"] == best["weights_sha256"]


def graded_by_the_start(folder):
    start = load_sentence_transformer(folder / "a", pooling="mean")
    left, right = of_topics(60, seed=8)[0], of_topics(60, seed=9)[0]
    cosines = start.similarity_pairwise(start.encode(left), start.encode(right)).tolist()
    rows = [
        {"sentence1": one, "sentence2": two, "score": 2 + 2 * cosine}
        for one, two, cosine in zip(left, right, cosines)
    ]
    (folder / "graded.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_share_of_the_map_keeps_what_is_general(text):
    graded_by_the_start(text)
    general = {"general": {"graded": "graded.jsonl"}}
    found = []
    for retention in (100.0, 2.0, 0.0):
        write(text, [START, {**MAPPED, "evaluate": {**general, "retention": retention}}])
        assert train(text, "--output-dir", str(text / f"run-{retention:g}")) == 0
        found.append(results(text, f"run-{retention:g}")["stages"][1])
    free, bound, nothing = found
    assert free["maps"]["share"] == 1 and free["spearman"]["graded"] < 98
    assert bound["maps"]["share"] in (0.8, 0.6, 0.4, 0.2) and bound["spearman"]["graded"] >= 98
    assert nothing["maps"]["chosen"] == "" and nothing["spearman"] == nothing["spearman_start"]


def test_anchors_keep_their_vectors(text):
    write(text, [START, {**with_maps(anchors="general.txt", anchor_share=0.9), "evaluate": {}}])
    assert train(text) == 0
    start, mapped = (SentenceTransformer(str(text / "run" / name)) for name in ("start", "mapped"))
    assert len(list(mapped)) == len(list(start)) + 3  # One layer between two normalisations.
    vectors, anchors = (
        start.encode(load_sentences([Source(text / name)]).dataset["sentence"][:])
        for name in ("text.txt", "general.txt")
    )
    maps = fit_maps(vectors, [Centred(), Drawn(5, 0.5)])
    held = held_in_place(vectors, maps, anchors, 0.9)
    np.testing.assert_allclose(mapped[-2].linear.bias.detach().numpy(), 0, atol=1e-9)
    np.testing.assert_allclose(mapped[-2].linear.weight.detach().numpy().T, held.matrix, atol=1e-4)
    moved = 1 - (apply_maps(maps, anchors) * apply_maps([held], anchors)).sum(axis=1).mean()
    own = anchors / np.linalg.norm(anchors, axis=1, keepdims=True)
    kept = 1 - (own * apply_maps([held], anchors)).sum(axis=1).mean()
    assert kept < moved / 4


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        (with_maps(normalize=False), "are not of length 1 and a map's are"),
        (with_maps(ways=[[{"centred": True, "axes": 0.1}]]), "found 'centred' and 'axes'. Give"),
        (with_maps(ways=[["centered"]]), "Did you mean 'centred'?"),
        (with_maps(ways=[[{"axes": -1}]]), "axes: expected"),
        ({**with_maps(ways=[["centred"], ["drawn"]]), "evaluate": {}}, "'evaluate.dev' to choose"),
        ({**MAPPED, "loss": {"type": "SimCSELoss"}}, "beside 'maps', found a loss"),
        ({**BEST, "candidates": ["stage:mapped"]}, "found 'stage:mapped', no stage of this recipe"),
        ({**BEST, "candidates": ["stage:start"], "evaluate": {}}, "expected 'evaluate.dev' to"),
        ({**BEST, "candidates": []}, "candidates"),
        ({**BEST, "candidates": ["stage:start"], "maps": MAPPED["maps"]}, "found both. Give each"),
    ],
)
def test_what_does_not_go_together_is_refused(text, capsys, stage, told):
    write(text, [START, stage])
    assert told in refusal(text, capsys)


def test_fewer_than_a_hundred_texts_are_refused(text, capsys):
    (text / "text.txt").write_text("\n".join(of_topics(80)[0]) + "\n")
    assert "different sentences, and 'dev: unlabelled' needs 100" in refusal(text, capsys)
    write(text, [START, {**MAPPED, "evaluate": {}}])
    told = refusal(text, capsys)
    assert "Stage 'mapped': A map is fitted on 90 vectors or more, found 80; add text." in told


def test_candidates_of_another_form_do_not_compete_where_the_form_is_to_stay(text):
    same = {**BEST, "candidates": {"models": ["stage:mapped"], "form": "same"}}
    write(
        text, [START, {**MAPPED, "evaluate": {}}, {**same, "evaluate": {"dev": "labelled.jsonl"}}]
    )
    assert train(text) == 0
    found = results(text)["stages"][2]
    assert [entry["name"] for entry in found["candidates"]["entries"]] == ["start"]


def test_candidates_that_the_run_leaves_out_do_not_compete(text):
    late = {**MAPPED, "name": "late", "only": {"effort": ["full"]}, "evaluate": {}}
    best = {
        **BEST,
        "candidates": ["stage:mapped", "stage:late"],
        "evaluate": {"dev": "labelled.jsonl"},
    }
    write(text, [START, {**MAPPED, "evaluate": {}}, late, best], effort="seconds")
    assert train(text) == 0
    found = results(text)["stages"][2]
    assert [entry["name"] for entry in found["candidates"]["entries"]] == ["start", "mapped"]
    scores = {entry["name"]: entry["dev"] for entry in found["candidates"]["entries"]}
    assert found["candidates"]["chosen"] == max(scores, key=scores.get)
    assert found["spearman"]["dev"] == pytest.approx(max(scores.values()), abs=1e-3)


def test_a_reference_says_which_neighbours_are_right(text):
    without_topics(text)
    save_encoder(text / "b", 5, num_hidden_layers=1)
    other = {**START, "name": "other", "model": {"base": "./b", "pooling": "mean"}}
    late = {**other, "name": "late", "only": {"effort": ["full"]}}
    reference = [{"model": "stage:other", "normalize": True}]
    by_other = {**BEST, "candidates": {"models": ["stage:other"], "reference": reference}}
    reference = [{"model": "stage:late"}]
    by_none = {"name": "agreed", "candidates": {"models": ["stage:other"], "reference": reference}}
    write(text, [START, other, late, by_other, {**BEST, **by_none}], effort="seconds")
    assert train(text) == 0
    *_, best, agreed = results(text)["stages"]
    assert best["candidates"]["chosen"] == "other"
    scores = {entry["name"]: entry["dev"] for entry in best["candidates"]["entries"]}
    _, held = hold_out(load_sentences([Source(text / "text.txt")]))
    near = []
    for name in ("a", "b"):
        model = load_sentence_transformer(text / name, pooling="mean")
        vectors = unit_rows(model.encode(held.dataset["sentence"][:]).astype(np.float64))
        cosines = vectors @ vectors.T
        np.fill_diagonal(cosines, -1)
        near.append(np.argsort(-cosines)[:, : (len(vectors) - 1) // 2])
    shared = [len(set(one) & set(two)) / len(one) for one, two in zip(*near)]
    # The reference is kept in half precision, in which near neighbours may change places.
    expected = {"start": 100 * np.mean(shared), "other": 100.0}
    assert scores == {name: pytest.approx(score, abs=1.2) for name, score in expected.items()}
    # A run without the stage that it names has no reference, and the start is what all agree on.
    assert agreed["candidates"]["chosen"] == "start"
