"""The benchmarks' page shows what was measured, and the script for accelerators measures."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    """Import a script as its command does."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (BENCHMARKS / f"{name}.py").is_file():
            del sys.modules[name]


def test_the_page_shows_the_results_and_nothing_else_between_the_marks(script):
    tables = script("tables")
    page, found = tables.PAGE.read_text(encoding="utf-8"), tables.results()
    assert tables.filled(page, found) == page
    assert set(re.findall(r"<!-- end of (\w+) -->", page)) == tables.MAKERS.keys()


def test_a_table_is_made_of_the_figures_and_replaces_what_was_between_the_marks(script):
    tables = script("tables")
    row = {"loss": "SimCSELoss", "batch": 4096, "ms_a_sentence": 2.5, "growth": [0.98, 1.024, 1.1]}
    found = {"machine": "M", "torch": "2.13", "threads": 1, "mini_batch": 128, "rounds": 3, "rows": [row]}
    page = tables.filled("a\n<!-- growth -->\nold\n<!-- end of growth -->\nb", {"growth": found})
    assert page.splitlines()[:2] == ["a", "<!-- growth -->"] and page.splitlines()[-2:] == [
        "<!-- end of growth -->",
        "b",
    ]
    assert "| SimCSELoss | 4,096 | 2.5 | 1.02 (0.98 to 1.10) |" in page and "old" not in page
    with pytest.raises(SystemExit, match="expected the marks of growth, found none"):
        tables.filled("no marks", {"growth": found})


@pytest.mark.parametrize("loss", ["SimCSELoss", "JTCSELoss"])
def test_the_accelerators_script_measures_a_tiny_shape(script, loss, tmp_path):
    arguments = ["--shapes", "tiny", "--losses", loss, "--batches", "4", "--steps", "1", "--results", str(tmp_path)]
    script("gpu").main(arguments)
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["device"] == ("cuda" if torch.cuda.is_available() else "cpu")
    (row,) = found["rows"]
    assert 18 < row["mean_tokens"] < 32 and 0 < row["padding"] < 0.9
    assert row["sentences_per_second"] == pytest.approx(4 / row["step_seconds"])
    assert row["epoch_seconds"] >= 250_000 * row["step_seconds"]
    # Six products forward and back a token and weight, 12 x 32 x 32 a layer; of the last layer keys and values only.
    done = row["peak_share"] * row["step_seconds"] * row["peak_tflops"] * 1e12
    tokens = 4 * row["mean_tokens"] * (2 if loss == "SimCSELoss" else 4)
    assert 0.5 < done / (6 * (12 + 2) * 32 * 32 * tokens) < 2
    assert 0 < row["products_of_busy"] < 1 and row["limited_by"]
