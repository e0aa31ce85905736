"""An evaluation's tables and Markdown, the papers' figures beside ours."""

from st_jtcse.evaluation.jobs import Record
from st_jtcse.evaluation.suites import Suite, suite_scores
from st_jtcse.reports.evaluation_report import evaluation_markdown, suite_table, write_evaluation


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
    assert (table.title, table.columns) == (
        "mine: Table 1",
        ["task", "metric", "this model", "JTCSE"],
    )
    assert table.rows == [
        ["A", "f1", "20.00", "10.00"],
        ["B", "f1", "-", "10.00"],
        ["mean", "", "-", "10.00"],
    ]


def test_markdown_has_tables_further_means_and_notes():
    model = {
        "name": "m",
        "sha256": "ab",
        "parameters": 1_500_000,
        "dimension": 8,
        "max_seq_length": 32,
    }
    data = {
        "model": model,
        "versions": {"python": "3"},
        "suites": {"mine": suite(0.2, 0.5)},
        "missing": {"x": "why."},
    }
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


def test_a_page_is_called_for_the_model_and_begins_with_the_verdict_beside_the_base(tmp_path):
    (tmp_path / "mine").mkdir()
    model = {
        "name": str(tmp_path / "mine"),
        "sha256": "ab",
        "parameters": 1,
        "dimension": 8,
        "max_seq_length": 32,
    }
    told = [
        {
            "set": "s",
            "base": 79.5,
            "score": 80.5,
            "verdict": "better",
            "sentence": "s: better, 79.50 -> 80.50",
        }
    ]
    told.append(
        {
            "set": "t",
            "base": 9.5,
            "score": 8.5,
            "verdict": "worse",
            "sentence": "t: worse, 9.50 -> 8.50",
        }
    )
    missing = {"a": "it is gone.", "b": "it is gone.", "c": "it failed."}
    data = {"model": model, "versions": {}, "suites": {}, "missing": missing}
    write_evaluation(tmp_path, data | {"beside": {"model": "base", "verdicts": told}})
    page = (tmp_path / "index.html").read_text()
    headings = ["<h1>Evaluation of mine</h1>", "Verdict beside base</h2>"]
    verdicts = ["<p>s: better", '<p class="loss">t: worse', ">base</th>", ">mine</th>"]
    places = [
        page.index(part)
        for part in [*headings, *verdicts, "<p>a, b: it is gone.</p>", "<p>c: it failed.</p>"]
    ]
    assert places == sorted(places) and '<td class="best">80.50</td>' in page
    assert "- a, b: it is gone.\n- c: it failed." in (tmp_path / "results.md").read_text()
