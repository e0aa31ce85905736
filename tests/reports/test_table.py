"""One table, three faces: what a cell holds is shown as it is."""

import io

from rich.console import Console

from st_jtcse.reports.page import Section, render_page
from st_jtcse.reports.table import Table, best_by_column, best_of

TABLE = Table(["model", "kind", "a|b"], [["[bold]", "<i>", "1.5"]], "scores of [bold]", names=2)


def test_markdown_escapes_the_bar_and_aligns_figures_right():
    assert TABLE.markdown().splitlines() == [
        r"| model | kind | a\|b |",
        "|:--|:--|--:|",
        r"| \[bold\] | &lt;i> | 1.5 |",
    ]


def test_the_terminal_shows_brackets_as_they_are():
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(TABLE.terminal())
    told = console.export_text()
    assert "scores of [bold]" in told and told.count("[bold]") == 2 and "<i>" in told
    assert [column.justify for column in TABLE.terminal().columns] == ["left", "left", "right"]


def test_a_name_too_long_for_the_terminal_is_broken_and_not_cut():
    console = Console(width=30, record=True, file=io.StringIO())
    console.print(
        Table(["stage", "everyday_test"], [["ranked_first_last", "79.88 -> 80.85"]]).terminal()
    )
    told = console.export_text()
    assert "…" not in told and all(
        part in told for part in ("ranked_", "_last", "79.88 ->", "80.85", "everyday")
    )


def test_the_page_escapes_tags_and_names_the_columns_that_are_names():
    page = render_page("t", [Section("Scores", table=TABLE)])
    assert (
        '<th scope="row" class="name">[bold]</th>' in page
        and '<td class="name">&lt;i&gt;</td>' in page
    )
    assert "<td>1.5</td>" in page and '<th scope="col" class="name">kind</th>' in page


def test_the_best_of_each_column_is_marked_on_terminal_and_page():
    rows = [["base", "79.88", "0.42"], ["a", "79.88 -> 80.85", "-"], ["b", "", "0.38"]]
    best = best_by_column(rows, [1]) | best_by_column(rows, [2], lowest=True)
    assert best == {(1, 1), (2, 2)} and best_of(rows, [(0, 1), (2, 1)]) == set()
    table = Table(["model", "score", "distance"], rows, best=best)
    assert "| a | 79.88 -> 80.85 | - |" in table.markdown()
    page = render_page("t", [Section("Scores", table=table)])
    assert '<td class="best">79.88 -&gt; 80.85</td>' in page and page.count('class="best"') == 2
    console = Console(width=60, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(table.terminal())
    assert "\x1b[1m79.88 -> 80.85\x1b[0m" in console.file.getvalue()
