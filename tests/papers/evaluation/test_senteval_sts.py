"""SentEval's three aggregations against correlations computed by hand; usable in training."""

import numpy as np
import pytest
from conftest import make_model, make_sentences, training_arguments
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from st_jtcse.errors import UserError
from st_jtcse.losses import SimCSELoss
from st_jtcse.papers.evaluation import SentEvalSTSEvaluator


def ranks(values):
    """Ranks from 1, equal values sharing their mean rank."""
    values = np.asarray(values)
    return np.array(
        [(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values]
    )


def pearson(x, y):
    x, y = np.asarray(x, float) - np.mean(x), np.asarray(y, float) - np.mean(y)
    return (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())


@pytest.fixture
def subsets():
    def pairs(count, seed):
        scores = [float(number % 5) for number in range(count)]
        return make_sentences(count, seed), make_sentences(count, seed + 50), scores

    return {"MSRpar": pairs(18, 1), "OnWN": pairs(9, 2)}


def cosines(model, first, second):
    u, v = (model.encode(texts).astype(np.float64) for texts in (first, second))
    return (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)


def test_all_mean_and_wmean_are_senteval_s(model, subsets):
    metrics = SentEvalSTSEvaluator(subsets, name="sts12")(model)
    similarity = {
        name: cosines(model, first, second) for name, (first, second, _) in subsets.items()
    }
    gold = {name: scores for name, (_, _, scores) in subsets.items()}
    together = np.concatenate([*similarity.values()]), np.concatenate([*gold.values()])
    for measure, prepare in (("spearman", ranks), ("pearson", np.asarray)):
        each = {name: pearson(prepare(similarity[name]), prepare(gold[name])) for name in gold}
        expected = {
            "all": pearson(*map(prepare, together)),
            "mean": (each["MSRpar"] + each["OnWN"]) / 2,
            "wmean": (18 * each["MSRpar"] + 9 * each["OnWN"]) / 27,
            **each,
        }
        for name, value in expected.items():
            assert metrics[f"sts12_{measure}_{name}"] == pytest.approx(value, abs=1e-5), name
    assert len(set(metrics.values())) == len(metrics)


def test_one_subset_equals_sentence_transformers_own_evaluator(model, subsets):
    pairs = subsets["MSRpar"]
    expected = EmbeddingSimilarityEvaluator(*pairs, write_csv=False)(model)
    metrics = SentEvalSTSEvaluator({"MSRpar": pairs})(model)
    assert metrics["spearman_all"] == pytest.approx(expected["spearman_cosine"], abs=1e-9)
    assert metrics["spearman_all"] == metrics["spearman_mean"] == metrics["spearman_wmean"]


def test_sentences_are_encoded_once(model, subsets, monkeypatch):
    first, second, scores = subsets["MSRpar"]
    subsets = {"MSRpar": (first, second, scores), "again": (second, first, scores)}
    asked, encode = [], model.encode
    monkeypatch.setattr(
        model, "encode", lambda texts, **options: asked.extend(texts) or encode(texts, **options)
    )
    SentEvalSTSEvaluator(subsets)(model)
    assert sorted(asked) == sorted(set(first + second))


def test_it_chooses_checkpoints_in_training(tower_folders, subsets, tmp_path):
    model = make_model(tower_folders[0])
    trainer = SentenceTransformerTrainer(
        model,
        training_arguments(
            tmp_path,
            eval_strategy="steps",
            eval_steps=3,
            save_steps=3,
            metric_for_best_model="eval_dev_spearman_all",
        ),
        train_dataset=Dataset.from_dict({"sentence": make_sentences(64)}),
        loss=SimCSELoss(model),
        evaluator=SentEvalSTSEvaluator(subsets, name="dev"),
    )
    trainer.train()
    logged = [
        entry["eval_dev_spearman_all"]
        for entry in trainer.state.log_history
        if "eval_dev_spearman_all" in entry
    ]
    assert len(logged) == 2
    assert trainer.state.best_metric == max(logged)


@pytest.mark.parametrize(
    "faulty", [{}, {"x": (["a"], ["b"], [1.0])}, {"x": (["a", "b"], ["c"], [1.0, 2.0])}]
)
def test_sets_that_cannot_be_correlated_are_refused(faulty):
    with pytest.raises(UserError, match="needs at least"):
        SentEvalSTSEvaluator(faulty)
