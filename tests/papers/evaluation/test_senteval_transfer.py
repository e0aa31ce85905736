"""SentEval's three ways of splitting, against loops written out."""

import numpy as np
import pytest
from conftest import make_sentences
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from st_jtcse.errors import UserError
from st_jtcse.papers.evaluation import LabelledTexts, SentEvalTransferEvaluator

INNER = [0.25, 0.5, 1, 2, 4, 8]
GIVEN_TEST = [0.5, 1, 2, 4, 8, 16, 32]


def rows(count, seed, pairs=False, classes=2):
    """Labels that only partly follow from the texts, so that accuracies differ between C."""
    labels = [number % classes for number in range(count)]
    draw = np.random.default_rng(seed)
    words = ("dog", "table", "red")
    texts = [
        f"{sentence} {words[label if draw.random() < 0.7 else draw.integers(classes)]}"
        for sentence, label in zip(make_sentences(count, seed), labels)
    ]
    return LabelledTexts((texts, make_sentences(count, seed + 1)) if pairs else (texts,), labels)


def in_order(found):
    """SentEval's order: by the number of words, then by label."""
    table = sorted(
        zip(*found.columns, found.labels),
        key=lambda row: (*(len(x.split()) for x in row[:-1]), row[-1]),
    )
    *columns, labels = zip(*table)
    return [list(column) for column in columns], np.array(labels)


def folds():
    return StratifiedKFold(n_splits=10, shuffle=True, random_state=1111)


def accuracy(x, y, c, x_test, y_test):
    return LogisticRegression(C=c, max_iter=2000).fit(x, y).score(x_test, y_test)


def best(x, y, grid):
    means = []
    for c in grid:
        scores = [
            accuracy(x[train], y[train], c, x[test], y[test]) for train, test in folds().split(x, y)
        ]
        means.append(np.mean(scores))
    return grid[int(np.argmax(means))], max(means)


def test_without_a_test_split_ten_folds_choose_c_on_inner_folds(model):
    found = rows(50, 1)
    (texts,), y = in_order(found)
    x = model.encode(texts)
    chosen, scores, dev = [], [], []
    for train, test in folds().split(x, y):
        c, mean = best(x[train], y[train], INNER)
        chosen.append(c)
        dev.append(mean)
        scores.append(accuracy(x[train], y[train], c, x[test], y[test]))
    metrics = SentEvalTransferEvaluator({"all": found}, name="cr")(model)
    assert metrics == pytest.approx(
        {"cr_accuracy": np.mean(scores), "cr_dev_accuracy": np.mean(dev)}, abs=1e-9
    )
    # Otherwise the choice is not tested.
    assert len(set(chosen)) > 1


def test_with_a_test_split_ten_folds_of_train_choose_c(model):
    splits = {"train": rows(60, 2, classes=3), "test": rows(30, 3, classes=3)}
    ((train,), y), ((test,), y_test) = in_order(splits["train"]), in_order(splits["test"])
    x, x_test = model.encode(train), model.encode(test)
    c, dev = best(x, y, GIVEN_TEST)
    metrics = SentEvalTransferEvaluator(splits)(model)
    assert metrics == pytest.approx(
        {"accuracy": accuracy(x, y, c, x_test, y_test), "dev_accuracy": dev}, abs=1e-9
    )


def test_pairs_are_the_absolute_difference_beside_the_product(model):
    splits = {"train": rows(60, 4, pairs=True), "test": rows(30, 5, pairs=True)}
    features, labels = {}, {}
    for split, found in splits.items():
        (first, second), labels[split] = in_order(found)
        u, v = model.encode(first), model.encode(second)
        features[split] = np.concatenate([abs(u - v), u * v], axis=1)
    c, _ = best(features["train"], labels["train"], GIVEN_TEST)
    fitted = LogisticRegression(C=c, max_iter=2000).fit(features["train"], labels["train"])
    metrics = SentEvalTransferEvaluator(splits, report_f1=True)(model)
    assert features["train"].shape == (60, 64)
    assert metrics["accuracy"] == pytest.approx(
        fitted.score(features["test"], labels["test"]), abs=1e-9
    )
    assert metrics["f1"] == pytest.approx(
        f1_score(labels["test"], fitted.predict(features["test"])), abs=1e-9
    )


def test_a_dev_split_chooses_c_and_is_not_trained_on(model):
    splits = {"train": rows(40, 6), "dev": rows(40, 7), "test": rows(40, 8)}
    (((x, y), (x_dev, y_dev), (x_test, y_test))) = (
        (model.encode(texts), labels) for (texts,), labels in map(in_order, splits.values())
    )
    dev = [accuracy(x, y, c, x_dev, y_dev) for c in INNER]
    c = INNER[int(np.argmax(dev))]
    metrics = SentEvalTransferEvaluator(splits)(model)
    expected = {"accuracy": accuracy(x, y, c, x_test, y_test), "dev_accuracy": max(dev)}
    assert metrics == pytest.approx(expected, abs=1e-9)
    assert len(set(dev)) > 1


def test_the_same_model_and_rows_give_the_same_figures(model):
    splits = {"train": rows(40, 9), "dev": rows(30, 11), "test": rows(30, 10)}
    evaluator = SentEvalTransferEvaluator(splits, name="cr")
    assert evaluator(model) == evaluator(model)
    assert evaluator.primary_metric == "cr_accuracy"


@pytest.mark.parametrize(
    ("splits", "options", "message"),
    [
        ({"train": rows(40, 1)}, {}, "Expected the split 'all'"),
        ({"all": rows(40, 1, classes=1)}, {}, "two classes, found 1"),
        ({"all": rows(20, 1)}, {}, "The class 0 has 10 rows, too few for 10 folds"),
        (
            {"train": rows(40, 1), "test": rows(9, 1, classes=3)},
            {},
            "'test' holds the class 2, which train does not",
        ),
        ({"all": rows(40, 1)}, {"report_f1": True}, "F1 needs a test split"),
        ({"all": LabelledTexts((["a"],), [1, 2])}, {}, "as long as its labels"),
    ],
)
def test_sets_that_cannot_be_split_are_refused(splits, options, message):
    with pytest.raises(UserError, match=message):
        SentEvalTransferEvaluator(splits, **options)
