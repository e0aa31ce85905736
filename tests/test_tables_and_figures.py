"""The papers' tables and figures: none is missing, what the page names can be run, our figures are
where it says.
"""

import math
import re
import shlex
import sys
from functools import cache
from pathlib import Path

import pytest

from st_jtcse import bundled
from st_jtcse.cli import eval as evaluate
from st_jtcse.cli import train
from st_jtcse.evaluation.protocols import suites
from st_jtcse.papers.cli import convergence, diagnose
from st_jtcse.papers.reproduce.items import items
from st_jtcse.recipe import extends
from st_jtcse.recipe.load import load_recipe, read_recipe

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))
import table_pages  # noqa: E402

ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI")
NUMBERS = {
    "JTCSE": [
        *(f"Table {number}" for number in ROMAN),
        *(f"Fig. {number}" for number in range(1, 11)),
    ],
    "TNCSE": [
        *(f"Table {number}" for number in range(1, 7)),
        *(f"Supplement {number}" for number in ("I-1", "II-1")),
        *(f"Supplement IV-{number}" for number in range(1, 6)),
        *(f"Fig. {number}" for number in range(1, 7)),
    ],
    "CoSENT": [
        *(f"Table {number}" for number in ROMAN[:10]),
        *(f"Fig. {number}" for number in range(1, 6)),
    ],
    "LS-RNS": [*(f"Table {number}" for number in range(1, 8)), "Fig. 1", "Fig. 2"],
}
PARSERS = {
    "st-convergence": convergence,
    "st-diagnose": diagnose,
    "st-eval": evaluate,
    "st-train": train,
}
ITEMS = items()
COMMANDS = sorted({command for item in ITEMS.values() for command in item.commands})


@pytest.mark.parametrize("name", table_pages.PAGES)
def test_a_page_is_made_of_the_items(name):
    made = table_pages.PAGES[name]()
    assert (DOCS / name).read_text(encoding="utf-8") == made, "run python docs/table_pages.py"


@pytest.mark.parametrize("paper", NUMBERS)
def test_every_table_and_figure_is_an_item(paper):
    told = {item.number for item in ITEMS.values() if item.paper == paper}
    assert set(NUMBERS[paper]) <= told
    assert all(number.partition(",")[0] in NUMBERS[paper] for number in told)


def test_an_item_that_is_no_drawing_has_the_papers_values_and_a_way_to_it():
    for item in ITEMS.values():
        if item.drawing:
            continue
        assert item.values and (item.commands or item.make == "surface"), item.id
        assert item.in_mini or item.lacks or item.lost, item.id


def test_a_figure_of_ours_stands_on_the_page_that_it_names():
    for item in ITEMS.values():
        for figure, page in re.findall(r"\[([^]]+)\]\(([^)]+)\)", item.ours):
            assert figure in (DOCS / page).read_text(), (item.id, figure)
        for claim in item.claims:
            pairs = zip(claim.ours[::2], claim.ours[1::2]) if claim.ours else ()
            for mean, deviation in pairs:
                digits = 0 if mean > 100 else 2
                told = f"{mean:.{digits}f}" + (f" ± {deviation:.{digits}f}" if deviation else "")
                assert told in (DOCS / claim.page).read_text(), (claim.says, told)


def test_a_row_of_the_small_size_is_a_stage_of_its_recipe():
    for item in ITEMS.values():
        for label, place in item.places().items():
            assert place.stage in stages_of(place.recipe), (item.id, label)
            sweep = extends.load(bundled.recipes()[place.recipe]).data.get("sweep")
            assert (place.point is None) == (sweep is None), (item.id, label)
            assert place.point is None or place.point <= points_of(sweep), (item.id, label)


def points_of(sweep):
    blocks = [sweep] if isinstance(sweep, dict) else sweep or [{}]
    return sum(math.prod(map(len, block.values())) for block in blocks)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_resolves(command):
    program, *words = shlex.split(command)
    options = PARSERS[program]._parser().parse_args(words)
    if program == "st-train" and options.recipe is not None:
        written = bundled.recipes()[options.recipe].read_text()
        assert set(options.stages) <= stages_of(options.recipe)
        # Every recipe as written is loaded, and most rehearsed, in test_recipes.py; here what is
        # changed and swept.
        if options.overrides or "\nsweep:" in written:
            recipe = load_recipe(options.recipe, options.overrides).recipe
            last = (
                {key: values[-1] for key, values in recipe.sweep[-1].items()}
                if recipe.sweep
                else {}
            )
            assert load_recipe(options.recipe, options.overrides, last).stages
    assert set(getattr(options, "suites", ())) <= set(suites())


@pytest.mark.parametrize("item", [item for item in ITEMS.values() if item.commands], ids=str)
def test_the_commands_of_an_item_run_one_after_the_other_in_one_folder(item):
    """What a command reads of runs was left there by one before it, and none begins twice."""
    left = set()
    for command in item.commands:
        read = {place.rstrip("/") for place in re.findall(r"runs/[\w/-]+", command)}
        program, *words = shlex.split(command)
        options = PARSERS[program]._parser().parse_args(words)
        trains = program == "st-train" and options.recipe and not options.dry_run
        folder = options.output_dir or f"runs/{options.recipe}" if trains else None
        assert read - {folder} <= left, command
        if trains:
            assert not any(place.startswith(f"{folder}/") for place in left), command
            left |= set(left_by(folder, options))
        assert "runs/" not in f"{None if trains else options.output_dir}", command


def left_by(folder, options):
    """The stages' folders that a run of st-train leaves."""
    loaded = read_recipe(options.recipe, options.overrides)
    names = loaded.choose(options.stages)
    for name in names:
        missing = set(next(s for s in loaded.stages if s.name == name).earlier) - set(names)
        assert not missing, (options.recipe, name, missing)
    recipe, runs = loaded.recipe, [folder]
    if recipe.sweep:
        runs = [f"{folder}/{number:02d}" for number in range(1, points_of(recipe.sweep) + 1)]
    if recipe.sweep or recipe.seeds:
        seeds = recipe.seeds or [recipe.seed]
        runs = [f"{run}/seed-{seed}" for run in runs for seed in seeds]
    yield from runs
    yield from (f"{run}/{name}" for run in runs for name in names)


def test_a_table_with_a_recipe_of_its_own_is_found_by_its_number():
    """`st-train --list "Table X"` looks into the descriptions."""
    told = [f"{extends.load(path).data.get('description')}" for path in bundled.recipes().values()]
    for item in ITEMS.values():
        number = item.number.partition(",")[0]
        pooled = any(place.pooling for place in item.places().values())
        if item.recipe and item.make == "score" and number.startswith("Table") and not pooled:
            wanted = rf"{item.paper}\b.* {number}\b"
            assert any(re.search(wanted, text) for text in told), item.id


@cache
def stages_of(name):
    return {stage["name"] for stage in extends.load(bundled.recipes()[name]).data["stages"]}


def test_a_published_figure_is_reported_in_a_suite():
    """What the page says of JTCSE's and TNCSE's own models, the suites print beside yours."""
    for item in ITEMS.values():
        means = dict(suites()[item.suite].average) if item.suite and not item.lost else {}
        for name in {"JTCSE", "TNCSE"} & means.keys():
            found = re.search(rf"\b{name} (\d\d\.\d\d)\b", item.values)
            assert found is None or float(found[1]) == means[name], (item.id, name)
