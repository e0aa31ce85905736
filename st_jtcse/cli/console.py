"""What people read on the terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from st_jtcse.errors import naming
from st_jtcse.reports.table import Table

# Libraries that print what they log by handlers of their own.
_WITH_HANDLERS = ("transformers", "huggingface_hub", "datasets")

out = Console(emoji=False)
err = Console(stderr=True, emoji=False, soft_wrap=True, highlight=False, markup=False)


@naming("stdout")
def show(table: Table) -> None:
    """Print a table on stdout."""
    out.print(table.terminal())


@naming("stdout")
def say(text: object, style: str | None = None) -> None:
    """Print a line on stdout, as it is."""
    out.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def verdict(sentence: str, word: str) -> None:
    """Print a verdict on stdout; a regression is red."""
    say(sentence, {"better": "green", "worse": "bold red"}.get(word))


@contextmanager
def quiet_libraries(*, errors_only: bool = True) -> Iterator[None]:
    """Hold back progress bars, and load reports unless they may be logged: stderr is for faults,
    each one line.
    """
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging as theirs

    of_hub, of_theirs, had_bars = (
        hub.get_verbosity(),
        theirs.get_verbosity(),
        theirs.is_progress_bar_enabled(),
    )
    if errors_only:
        hub.set_verbosity_error()
        theirs.set_verbosity_error()
    theirs.disable_progress_bar()
    try:
        yield
    finally:
        hub.set_verbosity(of_hub)
        theirs.set_verbosity(of_theirs)
        if had_bars:
            theirs.enable_progress_bar()


@contextmanager
def no_bars_of_datasets() -> Iterator[None]:
    """Hold back datasets' progress bars; apart, since importing datasets takes a second."""
    from datasets.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    had_bars = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if had_bars:
            enable_progress_bars()


class _Lines(logging.Handler):
    """Writes what is logged on stderr, whatever that is at the time: a display of progress may
    stand before it.
    """

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # As logging's own handlers: a terminal that is gone ends no run.
            self.handleError(record)


@contextmanager
def own_lines(*, speaks: bool = True) -> Iterator[None]:
    """Show on stderr what the package logs, and nothing of libraries, whose words any handler of
    all logs still gets.

    Of a distributed run's processes one `speaks`.
    """
    own, *libraries = loggers = [logging.getLogger(name) for name in ("st_jtcse", *_WITH_HANDLERS)]
    before = [
        (logger, logger.level, logger.handlers[:], logger.propagate)
        for logger in (logging.root, *loggers)
    ]
    for library in libraries:
        library.handlers, library.propagate = [], True
    logging.root.setLevel(logging.INFO)
    # Without any, logging would print warnings itself.
    logging.root.addHandler(logging.NullHandler())
    own.setLevel(logging.DEBUG)
    lines = _Lines(logging.INFO) if speaks else logging.NullHandler()
    own.addHandler(lines)
    logging.captureWarnings(True)
    try:
        with quiet_libraries(errors_only=False), no_bars_of_datasets():
            yield
    finally:
        logging.captureWarnings(False)
        for logger, level, handlers, propagate in before:
            logger.setLevel(level)
            logger.handlers, logger.propagate = handlers, propagate


@naming("stdout")
def show_recipes(groups: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Print recipes under their headings, a line each: name, what it needs, and what it is."""
    lines = [
        (name, str(recipe.get("needs", "")))
        for recipes in groups.values()
        for name, recipe in recipes.items()
    ]
    names, needs = (max(map(len, column)) for column in zip(*lines))
    for heading, recipes in groups.items():
        say(heading, "bold")
        for name, recipe in recipes.items():
            say(
                f"  {name:<{names}}  {recipe.get('needs', ''):<{needs}}  "
                f"{recipe.get('description', '')}"
            )
