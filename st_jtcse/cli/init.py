"""st-train init: a first recipe, by a few questions or by flags."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from st_jtcse import bundled
from st_jtcse.cli import console
from st_jtcse.cli.exit_status import command
from st_jtcse.errors import UserError
from st_jtcse.recipe.first_recipes import BEGINNINGS, begin

_FLAGS = (
    "st-train init FILE --have sentences|pairs|model|paper --data FILE [--dev FILE] [--model NAME] "
    "[--recipe NAME]"
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-train init",
        description="Write a first recipe for what you have. Without --have it asks you; a script "
        "answers by options.",
        epilog="Example: st-train init mine.yaml --have model --data my.txt --model "
        "runs/quickstart/distilled",
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
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="your sentences, or your graded pairs"
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
        options.data = Path(
            _ask(f"Which file holds your {beginning.data.replace('train', 'sentences')}?")
        )
    if beginning.asks_model and options.model is None:
        options.model = _ask("Which model? A folder or a Hub id")
    given = {key: getattr(options, key) for key in ("data", "dev", "model", "recipe")}
    begin(options.file, options.have, **given)
    console.say(f"Wrote {options.file}.")
    console.say(f"Next: st-train {shlex.quote(str(options.file))} --dry-run")


def _ask(question: str, choices: list[str] | None = None, *, shown: bool = True) -> str:
    """Ask on the terminal; without one, or without an answer, say which flags answer."""
    from rich.prompt import Prompt

    try:
        if not sys.stdin.isatty():
            raise EOFError
        return Prompt.ask(question, choices=choices, show_choices=shown, console=console.err)
    except EOFError:
        raise UserError(
            f"There is no terminal to ask you on; answer by options: {_FLAGS}"
        ) from None


main = command(_parser, _run, interrupted="nothing was written")
