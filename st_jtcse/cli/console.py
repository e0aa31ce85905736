"""What people read on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from st_jtcse.errors import naming
from st_jtcse.reports.table import Table

out = Console(emoji=False)
err = Console(stderr=True, emoji=False, soft_wrap=True, highlight=False, markup=False)


@naming("stdout")
def show(table: Table) -> None:
    """Print a table on stdout."""
    out.print(table.terminal())


@naming("stdout")
def say(text: object) -> None:
    """Print a line on stdout, as it is."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def verdict(sentence: str, word: str) -> None:
    """Print a verdict on stdout; a regression is red."""
    out.print(sentence, style={"better": "green", "worse": "bold red"}.get(word), markup=False, soft_wrap=True)


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


@naming("stdout")
def show_recipes(groups: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Print recipes under their headings, a line each: name, what it needs, and what it is."""
    lines = [(name, str(recipe.get("needs", ""))) for recipes in groups.values() for name, recipe in recipes.items()]
    names, needs = (max(map(len, column)) for column in zip(*lines))
    for heading, recipes in groups.items():
        out.print(heading, style="bold", markup=False, highlight=False)
        for name, recipe in recipes.items():
            say(f"  {name:<{names}}  {recipe.get('needs', ''):<{needs}}  {recipe.get('description', '')}")
