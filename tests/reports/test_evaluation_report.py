"""An evaluation's tables and Markdown, the papers' figures beside ours."""

from st_jtcse.evaluation.jobs import Record
from st_jtcse.evaluation.suites import Suite, suite_scores
from st_jtcse.reports.evaluation_report import evaluation_markdown, suite_table


def suite(*scores):
    lines = [{"paper": label, "task": label, "reported": {"JTCSE": 10.0}} for label in ("A", "B")]
    asked = Suite(
        source="Table 1",
        note="a note",
        metric="f1",
        splits=["test"],
        rows=lines,
        average={"JTCSE": 10.0, "UC": 12.0},
    )
    records = {
        f"mteb/{label}": Record("somewhere", None, "f1", {"test": {"default": {"f1": score}}}, 1.0)
        for label, score in zip(("A", "B"), scores)
    }
    return suite_scores(asked, records)


def test_a_table_ends_with_the_means():
    table = suite_table("mine", suite(0.2))
    assert (table.title, table.columns) == ("mine: Table 1", ["task", "metric", "this model", "JTCSE"])
    assert table.rows == [
        ["A", "f1", "20.00", "10.00"],
        ["B", "f1", "-", "10.00"],
        ["mean", "", "-", "10.00"],
    ]


def test_markdown_has_tables_further_means_and_notes():
    model = {"name": "m", "sha256": "ab", "parameters": 1_500_000, "dimension": 8, "max_seq_length": 32}
    data = {"model": model, "versions": {"python": "3"}, "suites": {"mine": suite(0.2, 0.5)}, "missing": {"x": "why."}}
    text = evaluation_markdown(data)
    for part in (
        "# Evaluation of m",
        "1.5M parameters",
        "| task | metric | this model | JTCSE |",
        "| A | f1 | 20.00 | 10.00 |",
        "| mean |  | 35.00 | 10.00 |",
        "Further means reported: UC 12.00.",
        "- a note",
        "- x: why.",
    ):
        assert part in text
