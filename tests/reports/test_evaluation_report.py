"""An evaluation's tables and Markdown, the papers' figures beside ours."""

from st_jtcse.evaluation.suites import Suite, suite_scores
from st_jtcse.evaluation.verdict import Verdict
from st_jtcse.records import Beside, EvaluatedModel, EvaluationResults, TaskRecord
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
        f"mteb/{label}": TaskRecord(
            source="somewhere",
            sha256=None,
            main_score="f1",
            scores={"test": {"default": {"f1": score}}},
            seconds=1.0,
        )
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


def evaluated(name, **told):
    model = EvaluatedModel(
        name=str(name),
        sha256="ab",
        files={},
        parameters=1_500_000,
        dimension=8,
        max_seq_length=32,
    )
    nothing = {"versions": {}, "suites": {}, "tasks": {}, "missing": {}}
    return EvaluationResults(model=model, **nothing | told)


def test_markdown_has_tables_further_means_and_notes():
    data = evaluated(
        "m", versions={"python": "3"}, suites={"mine": suite(0.2, 0.5)}, missing={"x": "why."}
    )
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
    told = [
        Verdict("s", 79.5, 80.5, 0.5, 1.5).as_record(),
        Verdict("t", 9.5, 8.5, -1.5, -0.5).as_record(),
    ]
    missing = {"a": "it is gone.", "b": "it is gone.", "c": "it failed."}
    beside = Beside(model="base", verdicts=told)
    write_evaluation(tmp_path, evaluated(tmp_path / "mine", missing=missing, beside=beside))
    page = (tmp_path / "index.html").read_text()
    headings = ["<h1>Evaluation of mine</h1>", "Verdict beside base</h2>"]
    verdicts = ["<p>s: better", '<p class="loss">t: worse', ">base</th>", ">mine</th>"]
    places = [
        page.index(part)
        for part in [*headings, *verdicts, "<p>a, b: it is gone.</p>", "<p>c: it failed.</p>"]
    ]
    assert places == sorted(places) and '<td class="best">80.50</td>' in page
    assert "- a, b: it is gone.\n- c: it failed." in (tmp_path / "results.md").read_text()
