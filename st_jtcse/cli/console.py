"""What people read on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from st_jtcse.errors import UserError

if TYPE_CHECKING:
    from st_jtcse.reports.spread import Spread
    from st_jtcse.reports.sweep import Point

out = Console()
err = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


def tell_faults(error: UserError) -> None:
    """Print one line a fault on stderr."""
    for fault in error.faults:
        err.print(fault)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Hold back progress bars and load reports: stderr is for faults, and each is one line."""
    from transformers.utils import logging

    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()


def show_results(results: dict[str, Any]) -> None:
    """Print every stage on every evaluation set: cosine Spearman x 100 where it started -> where it ended."""
    sets = list(dict.fromkeys(name for record in results["stages"] for name in record["spearman"]))
    table = Table(title=f"{results['recipe']}, seed {results['seed']}: Spearman x 100, start -> trained")
    table.add_column("stage")
    for column in ("parameters", "GMAC", "steps", "seconds", *sets):
        table.add_column(column, justify="right")
    for record in results["stages"]:
        scores = [
            f"{record['spearman_start'][name]:.2f} -> {record['spearman'][name]:.2f}"
            if name in record["spearman"]
            else ""
            for name in sets
        ]
        table.add_row(
            record["name"],
            _millions(record["parameters"]),
            f"{record['gmac']:.2f}",
            str(record["steps"]),
            f"{record['seconds']:.0f}",
            *scores,
        )
    out.print(table)


def show_sweep(rows: Sequence[Point], name: str) -> None:
    """Print what a sweep changed beside the scores of the stages that it changed."""
    sets = list(dict.fromkeys(set_name for row in rows for set_name in row.scores))
    table = Table(title=f"{name}: Spearman x 100, mean ± standard deviation over seeds")
    for column in ("setting", "stage"):
        table.add_column(column)
    for column in ("seeds", *sets):
        table.add_column(column, justify="right")
    for row in rows:
        scores = (spread(row.scores.get(set_name), 2) for set_name in sets)
        table.add_row(row.point, row.stage, str(row.seeds), *scores)
    out.print(table)


def show_plan(stages: Sequence[Any], files: Sequence[Path]) -> None:
    """Print what a run would do."""
    table = Table(title="plan (nothing is written)")
    for column in ("stage", "loss", "parameters", "sentences", "steps", "evaluated on"):
        table.add_column(column)
    for stage in stages:
        table.add_row(
            stage.name,
            stage.loss or "- (assembled)",
            _millions(stage.parameters),
            "from the Hub" if stage.sentences is None else str(stage.sentences),
            "?" if stage.steps is None else str(stage.steps),
            ", ".join(stage.evaluated_on) or "-",
        )
    out.print(table)
    out.print("Files:", *map(str, files), sep="\n  ", soft_wrap=True, highlight=False)


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column names the rows.

    Args:
        title: Its title.
        columns: Headings.
        rows: Cells.
    """
    table = Table(title=escape(title))
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    for row in rows:
        # A model may be called [bold].
        table.add_row(*map(escape, row))
    out.print(table)


def show_files(repo: str, files: Mapping[str, int]) -> None:
    """Print what a push would send."""
    table = Table(title=f"{escape(repo)} (nothing is sent)")
    table.add_column("file")
    table.add_column("bytes", justify="right")
    for name, size in files.items():
        table.add_row(escape(name), f"{size:,}")
    table.add_row("in all", f"{sum(files.values()):,}")
    out.print(table)


def show_suites(suites: Sequence[Sequence[str]]) -> None:
    """Print the suites' names, what they reproduce and their size."""
    table = Table("suite", "source", "tasks", title="suites")
    for row in suites:
        table.add_row(*row)
    out.print(table)


def show_recipes(recipes: dict[str, str]) -> None:
    """Print the bundled recipes' names and descriptions."""
    table = Table("recipe", "description", title="bundled recipes")
    for name, description in recipes.items():
        table.add_row(name, description)
    out.print(table)


def spread(value: Spread | None, digits: int) -> str:
    """Write a mean with its standard deviation."""
    return "-" if value is None else f"{value.mean:.{digits}f} ± {value.deviation:.{digits}f}"


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f}M"
