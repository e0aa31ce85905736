"""A run's own page: what it says of a run, with pictures and without."""

import json
import sys

import pytest
from conftest import run_results, stage_record
from test_page import read

from st_jtcse.evaluation.verdict import Verdict
from st_jtcse.records import RunResults
from st_jtcse.reports import drawing, run_report
from st_jtcse.reports.run_report import PAGE, Example, write_run_report

EVALUATED = "eval_dev_spearman_cosine"
EXAMPLES = [Example("A man eats.", "Someone <has> a meal.", 4.5, 0.6012, 0.7034)]


def record(name, scores, steps):
    logged = [
        {"loss": 2.0 / step, "nce": 1.0 / step, "step": step, "train_seconds": 1.0}
        for step in (1, 2)
    ]
    evaluated = [
        {EVALUATED: score / 100, "step": step, "train_seconds": 1.0}
        for step, score in zip((1, 2), scores)
    ]
    start = {"dev": 50.0, "test": 49.0}
    return stage_record(
        name,
        steps=steps,
        best_step=steps,
        log=[*logged, *evaluated],
        spearman_start=start,
        spearman={"dev": max(scores), "test": 52.0},
    )


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(run_report, "picture", drawing.picture)
    told = run_results(
        "tiny",
        7,
        record("encoder", (51.0, 50.5), 2),
        record("joint", (50.2, 53.0), 2),
        as_shipped={"base": {"dev": 50.0, "test": 49.0}},
        verdicts=[Verdict("test", 49.0, 52.0, 1.0, 5.0).as_record().plain()],
    )
    (tmp_path / "results.json").write_text(json.dumps(told))
    return RunResults.model_validate(told)


def test_the_page_tells_the_verdict_the_table_the_curves_and_examples(tmp_path, results):
    write_run_report(tmp_path, results, EXAMPLES, "test")
    page = (tmp_path / PAGE).read_text()
    reader = read(page)
    texts = [text for _, text in reader.texts if text]
    headings = [text for tag, text in reader.texts if tag == "h2" and text]
    assert headings == ["Verdict", "Stages", "Dev by step", "Loss terms", "Before and after"]
    assert (
        texts.index("test: better, 49.00 -> 52.00 (+3.00, 95 % interval +1.00 to +5.00)")
        < texts.index("base, as shipped")
        < texts.index("encoder")
    )
    assert [(tag, row.get("class")) for tag, row in reader.tags if row.get("class") == "best"] == [
        ("td", "best")
    ] * 3
    assert (
        '<td class="best">50.00 -&gt; 53.00</td>' in page
        and page.count('class="best">49.00 -&gt; 52.00') == 2
    )
    assert {
        "step 0",
        "step 2",
        "Someone <has> a meal.".join(("A man eats. / ", "")),
        "4.5",
        "0.60",
        "0.70",
    } <= set(texts)
    dev, losses = reader.all("img")
    assert (
        dev["alt"]
        == "One line per stage: encoder from 50.00, best 51.00; joint from 50.00, best 53.00."
    )
    assert losses["alt"] == "One panel per stage, one line per term: encoder, joint."
    write_run_report(tmp_path, results, EXAMPLES, "test")
    assert (tmp_path / PAGE).read_text() == page


def test_without_matplotlib_the_tables_say_it_and_how_to_have_the_curves(
    tmp_path, results, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    write_run_report(tmp_path, results.model_copy(update={"verdicts": []}), [], "")
    page = (tmp_path / PAGE).read_text()
    assert (
        "<img" not in page
        and "pip install &#39;st-jtcse[plots]&#39;" in page
        and "There is no verdict" in page
    )
    assert [text for tag, text in read(page).texts if tag == "td" and text][-3:] == [
        "50.00",
        "50.20",
        "53.00",
    ]
    assert "Before and after" not in page
