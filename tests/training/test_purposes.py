"""A stage makes its model better for search by its text alone, and what it is not for is watched."""

import json
import random

import numpy as np
import pytest
from conftest import WORDS, make_sentences, save_encoder, write_rows
from counted_run import train_counted
from processes import run_two
from sentence_transformers import SentenceTransformer
from test_run import refusal, results, train

from st_jtcse.abilities.watched import watched_lines
from st_jtcse.recipe.yaml_source import dump

START = {"name": "start", "model": {"base": "./a", "pooling": "mean"}, "loss": None}
SEARCHED = {
    "name": "searched",
    "model": {"base": "stage:start"},
    "loss": None,
    "search_maps": {},
    "watched": ["search", "topics"],
}


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A folder with an encoder, passages, and a writer of recipes."""
    monkeypatch.chdir(tmp_path)
    save_encoder(tmp_path / "a", 14, num_hidden_layers=1)
    draw = random.Random(0)
    passages = [" ".join(draw.choices(WORDS, k=24)) for _ in range(150)]
    (tmp_path / "text.txt").write_text("\n".join(passages) + "\n")
    write(tmp_path, [START, SEARCHED])
    return tmp_path


def write(folder, stages):
    recipe = {
        "name": "tiny",
        "seed": 7,
        "output_dir": str(folder / "run"),
        "cache_dir": str(folder / "cache"),
        "data": {"train": "text.txt"},
        "args": {"use_cpu": True, "disable_tqdm": True},
        "stages": stages,
    }
    (folder / "recipe.yaml").write_text(dump(recipe))


def test_the_best_candidate_of_a_text_is_appended_and_both_purposes_are_told(text, capsys):
    assert train(text) == 0
    told = capsys.readouterr().out
    start, searched = results(text)["stages"]
    found = searched["search_maps"]
    best = next(entry for entry in found["entries"] if entry["name"] == found["chosen"])
    assert found["passages"] == 150 and found["queries"] == 450 and found["overlap"] == 100
    assert found["entries"][0]["name"] == "start" and found["entries"][0]["stays"] == 100
    assert best["known_items"] >= found["entries"][0]["known_items"]
    models = [SentenceTransformer(str(text / "run" / name)) for name in ("start", "searched")]
    assert (len(models[1]) > len(models[0])) == (found["chosen"] != "start")
    before, after = searched["spearman_start"], searched["spearman"]
    assert set(before) == set(after) == {"known_items", "neighbourhoods"}
    for purpose, name in (("search", "known_items"), ("topics", "neighbourhoods")):
        assert f"{purpose}: {before[name]:.2f} -> {after[name]:.2f}" in told
    assert start["spearman"] == {}
    # The same recipe gives the same bytes.
    assert train(text, "--output-dir", str(text / "again")) == 0
    assert results(text, "again")["stages"][1]["weights_sha256"] == searched["weights_sha256"]


def test_two_processes_share_the_encoding_and_have_the_bytes_of_one(text):
    pairs = [{"text": line, "label": line[:1]} for line in make_sentences(40, 3)]
    write_rows(text / "kinds.jsonl", pairs)
    general = {"general": {"kinds": "kinds.jsonl"}, "retention": 100.0}
    maps = {"ways": [["drawn"]], "normalize": True}
    mapped = {**START, "name": "mapped", "maps": maps, "evaluate": general}
    write(text, [START, SEARCHED, mapped])
    run_two(train_counted, str(text), folder=text)
    # What every process computes for itself, the first the more: reading back, scoring the result.
    first, second = (json.loads((text / f"encoded-{rank}").read_text()) for rank in range(2))
    assert train(text, "--output-dir", str(text / "alone")) == 0
    together, alone = (results(text, place)["stages"] for place in ("run", "alone"))
    for own, other in zip(together, alone):
        for record in (own, other):
            record.pop("seconds"), record.pop("environment")
        assert own == other
    assert set(together[2]["spearman_start"]) == {"kinds"}
    # Of 450 queries, 150 passages and what is left of them, each encodes about half.
    assert 300 < second < first


def test_queries_and_documents_keep_their_prompts(text, monkeypatch):
    write(text, [START, {**SEARCHED, "watched": None}])
    asked = []
    for name in ("encode_query", "encode_document"):
        own = getattr(SentenceTransformer, name)

        def encode(model, texts, own=own, name=name, **how):
            asked.append((name, len(texts)))
            return own(model, texts, **how)

        monkeypatch.setattr(SentenceTransformer, name, encode)
    assert train(text) == 0
    # The passages, the queries, and the passages without the sentences that are queries.
    assert asked == [("encode_document", 150), ("encode_query", 450), ("encode_document", 150)]


def test_passages_are_fitted_as_a_search_encodes_them_and_their_headings_are_queries(
    text, monkeypatch
):
    passages = (text / "text.txt").read_text().splitlines()
    # Every third passage has no title, and every third a heading below it.
    rows = [
        {"_id": str(at), "title": "" if at % 3 == 2 else f"Part {at}", "text": passage}
        | ({"headings": [f"Part {at}", "Of towns"]} if at % 3 == 1 else {})
        for at, passage in enumerate(passages)
    ]
    (text / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write(text, [START, {**SEARCHED, "watched": None, "data": {"train": "corpus.jsonl"}}])
    asked = {"encode_query": [], "encode_document": []}
    for name in asked:
        own = getattr(SentenceTransformer, name)

        def encode(model, texts, own=own, name=name, **how):
            asked[name].append(list(texts))
            return own(model, texts, **how)

        monkeypatch.setattr(SentenceTransformer, name, encode)
    assert train(text) == 0
    documents, rests = asked["encode_document"]
    assert documents[0] == f"Part 0 {passages[0]}" and documents[2] == passages[2]
    (queries,) = asked["encode_query"]
    assert "Part 0" in queries and "Part 1 Of towns" in queries
    assert passages[0] in rests and passages[1] in rests
    found = results(text)["stages"][1]["search_maps"]
    assert found["headings"] == 100 and found["queries"] == 3 * 150 + 100


def test_a_run_is_measured_on_a_corpus_with_queries(text):
    passages = (text / "text.txt").read_text().splitlines()
    rows = [{"_id": str(at), "text": passage} for at, passage in enumerate(passages)]
    (text / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [" ".join(passage.split()[:8]) for passage in passages[:20]]
    lines = [f"{query},{at}" for at, query in enumerate(words)]
    (text / "queries.csv").write_text("\n".join(["query,relevant", *lines]) + "\n")
    asked = [{"_id": f"q{at}", "text": query} for at, query in enumerate(words)]
    (text / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    judged = "".join(f"q{at}\t{at}\t1\n" for at in range(20))
    (text / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    test = {
        "asked": {"file": "queries.csv", "corpus": "corpus.jsonl"},
        "judged": {"file": "qrels.tsv", "corpus": "corpus.jsonl", "queries": "queries.jsonl"},
    }
    write(text, [START, {**SEARCHED, "watched": None, "evaluate": {"test": test}}])
    assert train(text) == 0
    searched = results(text)["stages"][1]
    assert searched["metrics"] == {"asked": "ndcg@10", "judged": "ndcg@10"}
    assert searched["spearman"]["asked"] == searched["spearman"]["judged"] > 20


def test_a_loss_of_the_other_purpose_is_told():
    before, after = {"known_items": 60.0, "dev": 1.0}, {"known_items": 58.9, "dev": 1.0}
    (told,) = watched_lines("mine", before, after)
    assert told.startswith("mine loses search: 60.00 -> 58.90 (held-out passages are found")
    (told,) = watched_lines("mine", before, {"known_items": 59.1})
    assert told.startswith("mine keeps search")
    assert watched_lines("mine", {}, after) == []


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        ({"loss": {"type": "SimCSELoss"}}, "beside 'search_maps', found a loss. Remove one."),
        ({"data": {"pairs": "text.txt"}}, "expected texts in data.train beside 'search_maps'"),
        ({"search_maps": {"queries": 1}}, "queries"),
        ({"watched": ["sarch"]}, "watched"),
        (
            {"evaluate": {"test": {"mine": {"file": "text.txt", "queries": "text.txt"}}}},
            "expected 'corpus' beside 'queries', found none. Give the documents.",
        ),
        (
            {"evaluate": {"test": {"mine": {"dataset": "./a", "corpus": "text.txt"}}}},
            "expected a 'file' beside 'corpus', found a 'dataset'. Remove 'corpus'.",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(text, capsys, stage, told):
    write(text, [START, {**SEARCHED, **stage}])
    assert told in refusal(text, capsys)


def test_text_of_short_lines_is_refused(text, capsys):
    (text / "text.txt").write_text("\n".join(WORDS) + "\n")
    told = refusal(text, capsys)
    assert "expected 50 passages of a dozen words or more to make queries of, found 0." in told


def test_maps_change_no_length(text):
    assert train(text) == 0
    model = SentenceTransformer(str(text / "run" / "searched"))
    vectors = model.encode([" ".join(WORDS[:9]), WORDS[3]])
    if len(model) > 2:
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
