"""One's own sets score as Sentence-Transformers' evaluators do, and what cannot be measured is
refused.
"""

import json

import numpy as np
import pytest
from conftest import make_sentences
from sentence_transformers.sentence_transformer.evaluation import (
    BinaryClassificationEvaluator,
    EmbeddingSimilarityEvaluator,
    InformationRetrievalEvaluator,
    TripletEvaluator,
)

from st_jtcse.data import Source
from st_jtcse.errors import UserError
from st_jtcse.evaluation import OwnSetEvaluator, load_own_set
from st_jtcse.evaluation.own_sets import _of_labels
from st_jtcse.evaluation.verdict import verdicts
from st_jtcse.training.model_kinds import BI_ENCODER


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Source(file=path)


def rows_of(columns, values):
    return [dict(zip(columns, row)) for row in values]


@pytest.fixture
def texts():
    return list(dict.fromkeys(make_sentences(60, seed=3)))[:48]


def test_graded_pairs_score_as_sentence_transformers_does(model, texts, tmp_path):
    scores = [float(index % 6) for index in range(24)]
    rows = rows_of(("sentence1", "sentence2", "score"), zip(texts[:24], texts[24:], scores))
    evaluator = OwnSetEvaluator(load_own_set(write(tmp_path / "a.jsonl", rows), "mine"))
    theirs = EmbeddingSimilarityEvaluator(
        texts[:24], texts[24:48], scores, name="mine", main_similarity="cosine"
    )
    assert evaluator(model)["mine_spearman_cosine"] == pytest.approx(
        theirs(model)["mine_spearman_cosine"], abs=1e-9
    )


def test_pairs_whose_cosines_are_equal_score_as_sentence_transformers_does(model, tmp_path):
    """Their order is what rounding made of it: the table and the verdict have to round alike."""
    texts = make_sentences(200, seed=5)
    scores = [float(index % 6) for index in range(200)]
    rows = rows_of(("sentence1", "sentence2", "score"), zip(texts, texts, scores))
    own = load_own_set(write(tmp_path / "a.jsonl", rows), "mine")
    theirs = EmbeddingSimilarityEvaluator(
        texts, texts, scores, name="mine", main_similarity="cosine", batch_size=64
    )
    found, expected = own.score(own.statistic(model)), theirs(model)["mine_spearman_cosine"]
    assert found == pytest.approx(expected, abs=1e-12)
    (verdict,) = verdicts(model, model, {"mine": own})
    table = BI_ENCODER.scores(model, {"mine": theirs})["mine"]
    assert (round(verdict.score, 4), verdict.word) == (table, "equal")


def test_duplicates_score_as_sentence_transformers_does(model, texts, tmp_path):
    labels = [index % 3 == 0 for index in range(24)]
    rows = rows_of(
        ("sentence1", "sentence2", "label"), zip(texts[:24], texts[24:], map(int, labels))
    )
    evaluator = OwnSetEvaluator(load_own_set(write(tmp_path / "a.jsonl", rows), "mine"))
    theirs = BinaryClassificationEvaluator(
        texts[:24], texts[24:48], list(map(int, labels)), name="mine"
    )
    assert evaluator(model)["mine_cosine_ap"] == pytest.approx(
        theirs(model)["mine_cosine_ap"], abs=1e-6
    )


def test_triplets_score_as_sentence_transformers_does(model, texts, tmp_path):
    thirds = texts[:16], texts[16:32], texts[32:48]
    rows = rows_of(("anchor", "positive", "negative"), zip(*thirds))
    evaluator = OwnSetEvaluator(load_own_set(write(tmp_path / "a.jsonl", rows), "mine"))
    theirs = TripletEvaluator(*thirds, name="mine")
    assert evaluator(model)["mine_cosine_accuracy"] == pytest.approx(
        theirs(model)["mine_cosine_accuracy"]
    )


def test_queries_score_as_sentence_transformers_does(model, texts, tmp_path):
    pairs = [*zip(texts[:12], texts[12:24]), *zip(texts[:6], texts[24:30])]
    source = write(tmp_path / "a.jsonl", rows_of(("query", "relevant"), pairs))
    documents = list(dict.fromkeys(document for _, document in pairs))
    relevant = {
        query: {document for own, document in pairs if own == query} for query in texts[:12]
    }
    theirs = InformationRetrievalEvaluator(
        {query: query for query in relevant},
        {text: text for text in documents},
        relevant,
        name="mine",
    )
    ours = OwnSetEvaluator(load_own_set(source, "mine"))(model)["mine_ndcg@10"]
    assert ours == pytest.approx(theirs(model)["mine_cosine_ndcg@10"], abs=1e-6)


def test_labelled_texts_by_hand():
    # Two tight groups; the third text lies with the wrong one.
    angles = np.deg2rad([0, 5, 93, 90, 95, 100])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    labels = np.array(["a", "a", "a", "b", "b", "b"])
    statistic = _of_labels(labels, vectors)
    # All five others are neighbours: two of one's own group of three, so P@5 = 2/5, and the vote is
    # the other group's. Nearest: 0-1, 1-0, 2-4 (95), 3-2 (93), 4-2 (93), 5-4: own label for 0, 1
    # and 5.
    from sklearn.metrics import v_measure_score

    v_measure = v_measure_score(labels, [0, 0, 1, 1, 1, 1])
    expected = (3 / 6 + 2 / 5 + 0) / 4 + v_measure / 4
    assert statistic(np.arange(6)) == pytest.approx(expected)
    assert statistic(np.array([0, 1])) == pytest.approx((1 + 2 / 5 + 0) / 4 + 1 / 4)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"texte": "a", "label": 1}], "expected the columns of a set"),
        (
            [{"text": "a", "label": ""}, {"text": "b", "label": "x"}],
            "set.jsonl:1: 'label' is empty",
        ),
        ([{"text": "a", "label": 1}, {"text": "b", "label": 1}], "1 labels in 2 rows"),
        ([{"text": "a", "label": 1}], "holds 1 rows"),
        (
            [{"sentence1": "a", "sentence2": "b", "label": 2}] * 2,
            "set.jsonl:1: expected 0 or 1 in 'label', found 2",
        ),
        ([{"sentence1": "a", "sentence2": "b", "label": 1}] * 2, "every label is 1"),
        ([{"sentence1": "a", "sentence2": "b", "score": 1}] * 2, "every score is 1"),
        ([{"sentence1": "a", "sentence2": "b", "score": 6}] * 2, "the score 6 is outside 0 to 5"),
        ([{"query": "a", "relevant": "b"}] * 2, "all queries have one text"),
        ([{"anchor": "a", "positive": "", "negative": "b"}] * 2, "'positive' is empty"),
    ],
)
def test_what_cannot_be_measured_is_refused(rows, told, tmp_path):
    with pytest.raises(UserError) as refused:
        load_own_set(write(tmp_path / "set.jsonl", rows), "mine")
    assert told in str(refused.value)
