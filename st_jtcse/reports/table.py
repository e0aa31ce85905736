"""A table of results, and its faces: on the terminal, in Markdown and on a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from st_jtcse.reports.markdown import as_text

if TYPE_CHECKING:
    from rich.table import Table as TerminalTable


# A cell's row and column, from 0.
Place = tuple[int, int]


@dataclass(frozen=True)
class Table:
    """A table; its first columns say what a row is about, the others are aligned right."""

    columns: Sequence[str]  # headings
    rows: Sequence[Sequence[str]]  # cells, as they are shown
    title: str = ""  # what it shows
    names: int = 1  # how many columns are aligned left
    # The cells that terminal and page mark as the best of their kind.
    best: AbstractSet[Place] = frozenset()

    def terminal(self) -> TerminalTable:
        """Return it for rich's console; nothing in it is markup: a model may be called [bold]."""
        from rich.markup import escape
        from rich.table import Table as TerminalTable

        table = TerminalTable(title=escape(self.title) or None)
        for index, column in enumerate(self.columns):
            side: Literal["left", "right"] = "left" if index < self.names else "right"
            table.add_column(escape(column), justify=side, overflow="fold")
        for at, row in enumerate(self.rows):
            cells = list(map(escape, row))
            for to, cell in enumerate(cells):
                if (at, to) in self.best:
                    cells[to] = f"[bold]{cell}[/]"
            table.add_row(*cells)
        return table

    def markdown(self) -> str:
        """Return it as Markdown, without the title."""
        heading, *rows = (
            f"| {' | '.join(map(as_text, line))} |" for line in (self.columns, *self.rows)
        )
        rule = "".join([":--|"] * self.names + ["--:|"] * (len(self.columns) - self.names))
        return "\n".join([heading, f"|{rule}", *rows])


def best_of(
    rows: Sequence[Sequence[str]], places: Iterable[Place], *, lowest: bool = False
) -> set[Place]:
    """Return which of some cells hold the best number, the last in each; none where there is
    nothing to compare.
    """
    found: dict[Place, float] = {}
    for at, to in places:
        with suppress(ValueError, IndexError):
            found[at, to] = float(rows[at][to].split()[-1])
    if len(found) < 2:
        return set()
    first = (min if lowest else max)(found.values())
    return {place for place, value in found.items() if value == first}


def best_by_column(
    rows: Sequence[Sequence[str]], columns: Iterable[int], *, lowest: bool = False
) -> set[Place]:
    """Return the cells with the best number of each of some columns."""
    found: set[Place] = set()
    for to in columns:
        found |= best_of(rows, [(at, to) for at in range(len(rows))], lowest=lowest)
    return found


def number(value: float | None) -> str:
    """Write a score, or what stands for a missing one."""
    return "-" if value is None else f"{value:.2f}"


def millions(count: int) -> str:
    """Write a number of parameters."""
    return f"{count / 1e6:.1f}M"


def scale(sets: Iterable[str], metrics: Mapping[str, str]) -> str:
    """Say what the scores on sets are, by the sets' metrics; one that has none there is of graded
    pairs.
    """
    told = {}
    for name in sets:
        metric = metrics.get(name, "spearman")
        told[name] = "Spearman" if metric.startswith("spearman") else metric
    if len(set(told.values())) <= 1:
        return f"{next(iter(told.values()), 'Spearman')} x 100"
    others = [f"{name}: {metric}" for name, metric in told.items() if metric != "Spearman"]
    return f"Spearman x 100 ({', '.join(others)})"


def shipped_rows(
    as_shipped: Mapping[str, Mapping[str, float]], sets: Sequence[str]
) -> list[list[str]]:
    """Return the rows that a table of a run's, or a stage's, results begins with: its start models
    as shipped, by name.
    """
    rows = []
    for name, scores in as_shipped.items():
        called = f"{name}, as shipped" if scores else f"{name}, a plain encoder"
        rows.append([called, *map(number, map(scores.get, sets))])
    return rows
