"""st-train init: a first recipe for what you have, by a few questions or by options."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from st_jtcse import bundled
from st_jtcse.cli import console
from st_jtcse.cli.exit_status import command
from st_jtcse.errors import UserError
from st_jtcse.recipe.beginnings import BEGINNINGS, Given, begin

_FLAGS = (
    "st-train init FILE --have KIND --data FILE [--columns A,B] [--dev FILE] [--model NAME] "
    "[--recipe NAME]"
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-train init",
        description="Write a first recipe for what you have, with the columns of your file filled "
        "in. Without --have it asks you; a script answers by options.",
        epilog="Example: st-train init mine.yaml --have questions --data faq.csv --dev dev.csv",
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        default=Path("my-recipe.yaml"),
        metavar="FILE",
        help="the new file",
    )
    have = "; ".join(f"{name}: {beginning.told}" for name, beginning in BEGINNINGS.items())
    parser.add_argument("--have", choices=BEGINNINGS, help=have)
    parser.add_argument("--data", type=Path, metavar="FILE", help="your data")
    parser.add_argument(
        "--columns",
        metavar="A,B,...",
        help="the columns of your data, e.g. question,answer, where their names do not say it",
    )
    parser.add_argument(
        "--dev",
        type=Path,
        metavar="FILE",
        help="labelled data for choosing the checkpoint, if you have any",
    )
    parser.add_argument(
        "--model", metavar="NAME", help="the model to start from: a folder or a Hub id"
    )
    parser.add_argument(
        "--recipe",
        metavar="NAME",
        help="for a paper: its bundled recipe; st-train --list shows them",
    )
    return parser


def _run(options: argparse.Namespace) -> None:
    if options.have is None:
        told = "\n".join(f"  {name}: {beginning.told}" for name, beginning in BEGINNINGS.items())
        options.have = _ask(f"What do you have?\n{told}\n", list(BEGINNINGS))
    beginning = BEGINNINGS[options.have]
    if beginning.extends is None and options.recipe is None:
        options.recipe = _ask(
            "Which recipe? (st-train --list shows them)", list(bundled.recipes()), shown=False
        )
    if beginning.data is not None and options.data is None:
        what = "folder" if options.have == "documents" else "file"
        options.data = Path(_ask(f"Which {what}?"))
    columns = None
    if options.columns is not None:
        columns = tuple(name.strip() for name in options.columns.split(","))
    given = Given(options.data, options.dev, columns, options.model, options.recipe)
    told_of_files = begin(options.file, options.have, given, _ask_column)
    console.say(f"Wrote {options.file}.")
    for sentence in told_of_files:
        console.say(sentence)
    console.say(f"Next: st-train {shlex.quote(str(options.file))} --dry-run")


def _ask_column(told: str, there: Sequence[str]) -> str:
    listed = ", ".join(there)
    return _ask(
        f"Which column holds the {told}?",
        list(there),
        otherwise=f"which of the columns {listed} holds the {told} is not clear; name them by "
        "--columns A,B",
    )


def _ask(
    question: str,
    choices: list[str] | None = None,
    *,
    shown: bool = True,
    otherwise: str = f"answer by options: {_FLAGS}",
) -> str:
    """Ask on the terminal; without one, or without an answer, say what to do `otherwise`."""
    from rich.prompt import Prompt

    try:
        if not sys.stdin.isatty():
            raise EOFError
        return Prompt.ask(question, choices=choices, show_choices=shown, console=console.err)
    except EOFError:
        raise UserError(f"There is no terminal to ask you on; {otherwise}.") from None


main = command(_parser, _run, interrupted="nothing was written")
