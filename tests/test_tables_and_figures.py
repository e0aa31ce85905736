"""The papers' tables and figures: none is missing, what the page names can be run, our figures are
where it says.
"""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from st_jtcse import bundled
from st_jtcse.cli import eval as evaluate
from st_jtcse.cli import train
from st_jtcse.evaluation.protocols import suites
from st_jtcse.papers.cli import convergence, diagnose, score
from st_jtcse.recipe import extends
from st_jtcse.recipe.load import load_recipe

DOCS = Path(__file__).parents[1] / "docs"
ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI")
NUMBERS = {
    "JTCSE": [
        *(f"Table {number}" for number in ROMAN),
        *(f"Fig. {number}" for number in range(1, 11)),
    ],
    "TNCSE": [
        *(f"Table {number}" for number in range(1, 7)),
        *(f"Supplement {number}" for number in ("II-1", "IV-1", "IV-2", "IV-3", "IV-4", "IV-5")),
        *(f"Fig. {number}" for number in range(1, 6)),
    ],
    "CoSENT": [
        *(f"Table {number}" for number in ROMAN[:10]),
        *(f"Fig. {number}" for number in range(1, 6)),
    ],
    "LS-RNS": [*(f"Table {number}" for number in range(1, 8)), "Fig. 1", "Fig. 2"],
    "EDFSE and RankCSE": ["EDFSE", "EDFSE-D", "RankCSE", "RankCSE+UC", "UC D"],
}
PARSERS = {
    "st-convergence": convergence,
    "st-diagnose": diagnose,
    "st-eval": evaluate,
    "st-score": score,
    "st-train": train,
}


def rows():
    """The page's rows, by paper: number, what, command, ours, paper's, state."""
    paper = None
    for line in (DOCS / "tables-and-figures.md").read_text().splitlines():
        paper = line[3:] if line.startswith("## ") else paper
        if paper and line.startswith("| ") and not line.startswith("| number "):
            yield paper, *(cell.strip() for cell in line.strip("|").split("|"))


ROWS = list(rows())
COMMANDS = sorted(
    set(re.findall(r"`(st-[^`]+ [^`]+)`", (DOCS / "tables-and-figures.md").read_text()))
)


@pytest.mark.parametrize("paper", NUMBERS)
def test_every_table_and_figure_has_a_row(paper):
    told = set()
    for _, number, *_ in (row for row in ROWS if row[0] == paper):
        kind, *parts = re.split(r" (?=[IVX\d])|, ", number)
        told |= {number, *number.split(", "), *(f"{kind} {part}" for part in parts)}
    assert set(NUMBERS[paper]) <= told


def test_a_row_says_how_far_it_is():
    for _, number, _, command, ours, _, state in ROWS:
        assert re.fullmatch(
            "measured|Hub and GPU|measured; Hub and GPU|out of reach, because .+", state
        ), number
        assert command or state.startswith("out of reach"), number
        assert ("](" in ours) == state.startswith("measured") or state.startswith("out of reach"), (
            number
        )


def test_a_figure_of_ours_stands_on_the_page_that_it_names():
    for row in ROWS:
        for figure, page in re.findall(r"\[([^]]+)\]\(([^)]+)\)", row[4]):
            assert figure in (DOCS / page).read_text(), (row[:2], figure)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_resolves(command):
    program, *words = shlex.split(command)
    options = PARSERS[program]._parser().parse_args(words)
    if program == "st-train" and options.list is None:
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
    # What it is about is the stage of a recipe, and a suite.
    for name, stage in re.findall(r"runs/([\w-]+)/(\w+)", command):
        assert stage in stages_of(name)
    assert set(getattr(options, "suites", ())) <= set(suites())


def test_a_table_with_a_recipe_of_its_own_is_found_by_its_number():
    """`st-train --list "Table X"` looks into the descriptions."""
    told = [f"{extends.load(path).data.get('description')}" for path in bundled.recipes().values()]
    for paper, number, _, command, *_ in ROWS:
        own = number.startswith("Table") and re.search(r"`st-train [\w-]+`", command)
        for part in re.findall(r"\b[IVX\d]+\b", number) if own else ():
            assert any(re.search(rf"{paper}\b.* Table {part}\b", text) for text in told), (
                paper,
                part,
            )


@cache
def stages_of(name):
    return {stage["name"] for stage in extends.load(bundled.recipes()[name]).data["stages"]}


def test_a_published_figure_is_reported_in_a_suite():
    """What the page says of the papers' models, the suites print beside yours."""
    means = {f"{mean:.2f}" for suite in suites().values() for mean in suite.average.values()}
    for paper, number, _, command, _, published, state in ROWS:
        if "--suite" in command and not state.startswith("out of reach"):
            assert set(re.findall(r"\b\d\d\.\d\d\b", published)) <= means, (paper, number)
