"""The benchmarks' page shows what was measured, and the script for accelerators measures."""

import importlib
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

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


def test_the_pages_show_the_results_and_nothing_else_between_the_marks(script):
    tables = script("tables")
    found = tables.results()
    for place, names in tables.PAGES.items():
        page = place.read_text(encoding="utf-8")
        assert tables.filled(page, {name: found[name] for name in names if name in found}) == page
        assert set(re.findall(r"<!-- end of (\w+) -->", page)) == set(names)


def test_a_table_is_made_of_the_figures_and_replaces_what_was_between_the_marks(script):
    tables = script("tables")
    row = {"loss": "SimCSELoss", "batch": 4096, "ms_a_sentence": 2.5, "growth": [0.98, 1.024, 1.1]}
    found = {
        "machine": "M",
        "torch": "2.13",
        "threads": 1,
        "mini_batch": 128,
        "rounds": 3,
        "rows": [row],
    }
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
    arguments = [
        "--shapes",
        "tiny",
        "--losses",
        loss,
        "--batches",
        "4",
        "--steps",
        "1",
        "--results",
        str(tmp_path),
    ]
    script("gpu").main(arguments)
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["device"] == ("cuda" if torch.cuda.is_available() else "cpu")
    (row,) = found["rows"]
    assert 18 < row["mean_tokens"] < 32 and 0 < row["padding"] < 0.9
    assert row["sentences_per_second"] == pytest.approx(4 / row["step_seconds"])
    assert row["epoch_seconds"] >= 250_000 * row["step_seconds"]
    # Six products forward and back a token and weight, 12 x 32 x 32 a layer; of the last layer keys
    # and values only.
    done = row["peak_share"] * row["step_seconds"] * row["peak_tflops"] * 1e12
    tokens = 4 * row["mean_tokens"] * (2 if loss == "SimCSELoss" else 4)
    assert 0.5 < done / (6 * (12 + 2) * 32 * 32 * tokens) < 2
    assert 0 < row["products_of_busy"] < 1 and row["limited_by"]


def test_a_cell_ends_when_its_time_is_over_and_chains_divide_it(script, monkeypatch):
    same_time = script("same_time")
    clock = [20.0]
    monkeypatch.setattr(same_time.time, "process_time", lambda: clock[0])
    deadline = same_time.Deadline(100.0, [1, 3])
    group = {"initial_lr": 0.4, "lr": 0.4}
    optimizer, state = SimpleNamespace(param_groups=[group]), SimpleNamespace(global_step=0)
    constant, falling = (
        SimpleNamespace(lr_scheduler_type=kind, warmup_steps=2) for kind in ("constant", "linear")
    )
    over = []
    for args, times in ((constant, (39.9, 40.0)), (falling, (70.0, 100.0))):
        deadline.on_train_begin(args, state, None)
        for clock[0] in times:
            deadline.on_step_begin(args, state, None, optimizer=optimizer)
            deadline.on_step_end(args, state, control := SimpleNamespace())
            over.append((group["lr"], control.should_training_stop))
    # A quarter of 80 seconds, then what is left; of a rate that falls half the warm-up and half the
    # time are over.
    assert over == [(0.4, False), (0.4, True), (pytest.approx(0.1), False), (0.0, True)]
    assert deadline.steps == 4 and deadline.last == 100.0


def test_every_way_of_the_comparison_is_a_recipe_without_an_end_or_a_choice(script, tmp_path):
    same_time = script("same_time")
    text = same_time.draw(
        BENCHMARKS.parent / "recipes" / "quickstart" / "sentences.txt",
        tmp_path / "own" / "text.txt",
    )
    drawn = text.read_text().splitlines()
    assert len(drawn) == len(set(drawn)) == min(same_time.SENTENCES, 2400)
    for way in same_time.WAYS:
        loaded = same_time.recipe_of(way, text, 3, tmp_path / "run")
        for stage in loaded.stages:
            assert stage.loss is None or (stage.args["max_steps"], stage.args["eval_strategy"]) == (
                1_000_000,
                "no",
            )
            # Only adapt compares at its end, and without labels.
            sets = stage.evaluate.sets if stage.evaluate is not None else {}
            assert all(way == "adapt" and chosen.unlabelled for chosen in sets.values())
        assert loaded.recipe.seed == 3


def test_scores_of_seeds_are_told_with_their_deviation_and_the_choice_with_its_loss(script):
    tables = script("tables")
    shipped, first, second = (
        {"way": way, "text": "bank", "seed": seed, "mean": mean}
        for way, seed, mean in (("as shipped", 0, 80.0), ("adapt", 1, 81.0), ("adapt", 2, 82.0))
    )
    assert tables.same_time({"cells": [shipped, first, second]})[-2:] == [
        "| as shipped | 80.0 |",
        "| adapt | 81.5 ± 0.7 |",
    ]
    row = {"text": "bank", "models": 3, "correlation": 0.5, "chosen": "adapt", "loss": 0.25}
    assert tables.choice({"texts": [row]})[-1] == "| bank | 3 | 0.5 | adapt | 0.25 |"
