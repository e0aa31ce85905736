"""A search over a whole corpus is measured as TREC's own program measures it."""

import json

import numpy as np
import pytest
import pytrec_eval
from conftest import make_sentences
from sentence_transformers import SentenceTransformer

from st_jtcse.data import Source
from st_jtcse.data.judged_corpus import JudgedCorpus, load_judged_corpus
from st_jtcse.errors import UserError
from st_jtcse.evaluation import load_own_set, searching
from st_jtcse.evaluation.searching import rank

THEIRS = {
    "ndcg@10": "ndcg_cut_10",
    "map@100": "map_cut_100",
    "recall@10": "recall_10",
    "recall@100": "recall_100",
}


def corpus_of(count, queries, seed):
    """Graded at random; as many texts as documents."""
    random = np.random.default_rng(seed)
    names = sorted((f"d{at}" for at in range(count)), reverse=True)
    grades = []
    for _ in range(queries):
        found = random.choice(count, size=random.integers(1, min(count, 40)), replace=False)
        grades.append({int(at): int(random.integers(1, 4)) for at in found})
    return JudgedCorpus(names, names, list(range(count)), ["q"] * queries, grades, 0, "")


@pytest.mark.parametrize("count", [7, 90, 400])
def test_figures_are_those_of_trec_with_grades_and_ties(count):
    corpus = corpus_of(count, 30, count)
    # Eleven different scores: most documents tie with others, at every cut too.
    scores = np.random.default_rng(1).integers(0, 11, (30, count)).astype(np.float32)
    found = rank(corpus, lambda rows: scores[rows])
    run = {f"q{at}": dict(zip(corpus.names, map(float, row))) for at, row in enumerate(scores)}
    judged = {
        f"q{at}": {corpus.names[place]: grade for place, grade in own.items()}
        for at, own in enumerate(corpus.grades)
    }
    figures = pytrec_eval.RelevanceEvaluator(judged, set(THEIRS.values())).evaluate(run)
    for ours, theirs in THEIRS.items():
        expected = [figures[f"q{at}"][theirs] for at in range(30)]
        np.testing.assert_allclose(found.figures[ours], expected, rtol=0, atol=1e-6)
    order = [sorted(own, key=lambda name: (own[name], name), reverse=True) for own in run.values()]
    best = {
        query: {name: own[name] for name in names[:10]}
        for (query, own), names in zip(run.items(), order)
    }
    firsts = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank"}).evaluate(best)
    expected = [firsts[query]["recip_rank"] for query in run]
    np.testing.assert_allclose(found.figures["mrr@10"], expected, rtol=0, atol=1e-6)


def test_queries_are_searched_a_few_at_a_time(monkeypatch):
    corpus = corpus_of(50, 9, 0)
    scores = np.random.default_rng(1).random((9, 50), dtype=np.float32)
    whole = rank(corpus, lambda rows: scores[rows])
    asked = []
    monkeypatch.setattr(searching, "_SCORES", 100)
    parts = rank(corpus, lambda rows: asked.append(len(scores[rows])) or scores[rows])
    assert asked == [2, 2, 2, 2, 1]
    assert (parts.found == whole.found).all()


def folder_of(path, documents, queries, judged):
    path.mkdir(exist_ok=True)
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    (path / "qrels").mkdir(exist_ok=True)
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in judged)]
    (path / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Source(path)


@pytest.fixture
def parts():
    texts = list(dict.fromkeys(make_sentences(60, seed=3)))[:40]
    documents = [{"_id": f"d{at}", "title": "", "text": text} for at, text in enumerate(texts)]
    queries = [{"_id": f"q{at}", "text": text[: len(text) // 2]} for at, text in enumerate(texts)]
    return documents, queries[:9], [(f"q{at}", f"d{at}", 1) for at in range(8)]


def test_a_folder_is_searched_by_model_words_and_both(model, parts, tmp_path):
    documents, queries, judged = parts
    own = load_own_set(folder_of(tmp_path / "mine", *parts), "mine")
    assert own.note == "8 queries, 40 documents; 1 queries without a relevant document are left out"
    found = own.rankings(model)
    assert set(found) == {"", "BM25", "with BM25"}
    asked, held = (
        model.encode([row["text"] for row in rows], normalize_embeddings=True)
        for rows in (queries[:8], documents)
    )
    scores = {
        f"q{at}": {row["_id"]: float(score) for row, score in zip(documents, line)}
        for at, line in enumerate(asked @ held.T)
    }
    relevant = {query: {document: grade} for query, document, grade in judged}
    theirs = pytrec_eval.RelevanceEvaluator(relevant, {"ndcg_cut_10"}).evaluate(scores)
    expected = np.mean([figures["ndcg_cut_10"] for figures in theirs.values()])
    assert found[""].means["ndcg@10"] == pytest.approx(expected, abs=1e-6)
    # The queries are half of their documents' words.
    assert found["BM25"].means["ndcg@10"] > 0.6
    assert own.score(own.statistic(model)) == found[""].means["ndcg@10"]


def test_queries_and_documents_keep_prompts_of_their_own(model, parts, tmp_path):
    own = load_own_set(folder_of(tmp_path / "mine", *parts), "mine")
    plain = own.rankings(model, lexical=False)[""].found
    asking = SentenceTransformer(modules=list(model), prompts={"query": "dog dog dog dog: "})
    asked = own.rankings(asking, lexical=False)[""].found
    assert (asked != plain).any()
    vectors = asking.encode_query(own.corpus.queries), asking.encode_document(own.corpus.texts)
    assert (own.searched(*vectors, lexical=False)[""].found == asked).all()


def test_passages_are_found_as_their_file_where_files_are_judged(tmp_path):
    documents = [
        {"_id": "1", "text": "a", "source": "x.md"},
        {"_id": "2", "text": "b", "source": "y.md"},
        {"_id": "3", "text": "c", "source": "x.md"},
    ]
    folder = folder_of(tmp_path / "mine", documents, [], [])
    (folder.file / "qrels" / "test.tsv").unlink()
    (folder.file / "queries.jsonl").unlink()
    lines = "query,relevant\nfirst,x.md\nsecond,y.md\n"
    (folder.file / "queries.csv").write_text(lines, encoding="utf-8")
    corpus = load_judged_corpus(folder)
    assert (corpus.names, corpus.starts, corpus.texts) == (
        ["y.md", "x.md"],
        [0, 1],
        ["b", "a", "c"],
    )
    scores = np.array([[0.5, 0.1, 0.9], [0.5, 0.4, 0.3]], np.float32)
    found = rank(corpus, lambda rows: scores[rows])
    assert found.found.tolist() == [[1, 0], [0, 1]]
    # The same beside each other, as a recipe has it.
    again = Source(folder.file / "queries.csv", corpus=folder.file / "corpus.jsonl")
    assert load_judged_corpus(again) == corpus


@pytest.mark.parametrize(
    ("judged", "message"),
    [
        ([("q0", "d0", -1)], "test.tsv:2: expected a grade of 0 or more in 'score', found '-1'"),
        ([("q0", "d0", 0.5)], "expected a grade of 0 or more in 'score', found '0.5'"),
        ([("q0", "d0", 1), ("q0", "d0", 2)], "test.tsv:3: the grade is 2 here and 1 at"),
        ([("q77", "d0", 1)], "test.tsv:2: the query 'q77' is not among the queries"),
        ([("q0", "x9", 1), ("q1", "d1", 1)], "found 'x9', as in 1 of 2 rows. Correct the ids, or"),
        ([("q0", "d0", 1), ("q1", "d1", 0)], "expected relevant documents of 2 queries or more, "),
        ([("", "d0", 1)], "test.tsv:2: expected an id in 'query-id', found ''"),
    ],
)
def test_faulty_judgements_are_told(parts, tmp_path, judged, message):
    documents, queries, _ = parts
    with pytest.raises(UserError) as told:
        load_judged_corpus(folder_of(tmp_path / "mine", documents, queries, judged))
    assert message in str(told.value)


def test_faulty_corpora_are_told(parts, tmp_path):
    documents, queries, judged = parts
    cases = {
        "corpus.jsonl:2: the id 'd0' is that of": (documents[:1] * 2, queries, judged),
        "queries.jsonl:2: the id 'q0' is that of": (documents, queries[:1] * 2, judged),
        "expected documents to rank, found 1. Give": (documents[:1], queries, judged),
        "corpus.jsonl:1: expected the columns _id, text": ([{"text": "a"}], queries, judged),
    }
    for message, made in cases.items():
        with pytest.raises(UserError) as told:
            load_judged_corpus(folder_of(tmp_path / "mine", *made))
        assert message in str(told.value)
    (tmp_path / "mine" / "queries.jsonl").unlink()
    with pytest.raises(UserError, match=r"expected queries.jsonl or .csv in it, found none"):
        load_judged_corpus(Source(tmp_path / "mine"))


def test_long_queries_are_told(model, parts, tmp_path, caplog):
    documents, queries, judged = parts
    long = [queries[0] | {"text": "a dog runs " * 400}, *queries[1:]]
    own = load_own_set(folder_of(tmp_path / "mine", documents, long, judged), "mine")
    own.statistic(model)
    assert "mine: 1 of 8 queries are longer than the" in caplog.text
