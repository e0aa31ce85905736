"""Scores of lines and tables, against means taken by hand."""

import pytest

from st_jtcse.evaluation.suites import RETRIEVAL, Row, Suite, suite_scores
from st_jtcse.records import TaskRecord


def record(scores, main_score="f1"):
    return TaskRecord(
        source="somewhere", sha256=None, main_score=main_score, scores=scores, seconds=1.0
    )


def line(label="A", metric="f1", **more):
    return Row(paper=label, task=label, metric=metric, **more)


SCORES = {
    "validation": {"de": {"f1": 0.1, "accuracy": 0.5}, "fr": {"f1": 0.3}},
    "test": {"de": {"f1": 0.6}, "fr": {"f1": 0.8}},
}


@pytest.mark.parametrize(
    ("restricted", "expected"),
    [
        ({}, 45.0),
        ({"subsets": ("de",)}, 35.0),
        ({"splits": ("test",)}, 70.0),
        ({"subsets": ("fr",), "splits": ("validation",)}, 30.0),
        # A part that was asked for and is not there leaves no score.
        ({"subsets": ("de", "es")}, None),
        ({"splits": ("train",)}, None),
        ({"metric": "accuracy"}, None),
        ({"metric": "accuracy", "subsets": ("de",), "splits": ("validation",)}, 50.0),
        ({"metric": None}, 45.0),
    ],
)
def test_a_score_is_the_mean_over_splits_of_the_mean_over_subsets(restricted, expected):
    score = line(**restricted).score(record(SCORES))
    assert score == (None if expected is None else pytest.approx(expected))


def table(*scores):
    lines = [{"paper": label, "task": label, "reported": {"JTCSE": 10.0}} for label in ("A", "B")]
    suite = Suite(
        source="Table 1",
        metric="f1",
        splits=["test"],
        rows=lines,
        average={"JTCSE": 10.0, "UC": 12.0},
    )
    records = {
        f"mteb/{label}": record({"test": {"default": {"f1": score}}})
        for label, score in zip(("A", "B"), scores)
    }
    return suite_scores(suite, records)


def test_the_mean_needs_every_task():
    assert table(0.2, 0.5).average == 35.0
    assert table(0.2).average is None


def test_retrieval_has_the_means_of_fifteen_metrics():
    values = {metric: number / 100 for number, metric in enumerate(RETRIEVAL)}
    records = {
        "mteb/A": record({"test": {"default": values}}),
        "mteb/B": record(
            {"test": {"default": {metric: value + 0.5 for metric, value in values.items()}}}
        ),
    }
    lines = [{"paper": label, "task": label} for label in ("A", "B")]
    suite = Suite(source="Table VI", metric="map_at_10", splits=["test"], rows=lines)
    means = suite_scores(suite, records).by_metric
    assert len(means) == 15
    assert means == pytest.approx({metric: 100 * value + 25 for metric, value in values.items()})
