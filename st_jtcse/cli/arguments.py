"""Kinds of arguments that several commands take."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from glob import glob
from typing import Any, get_args

from st_jtcse import bundled
from st_jtcse.errors import CodeNotTrusted, PoolerNeeded, PoolingNeeded, UserError, ways_out
from st_jtcse.pooling_names import PoolingName

# Of an option that may be given several times.
REPEATED: Any = {"action": "append", "default": []}


def positive(text: str, wanted: str = "a positive number") -> int:
    """Read a whole number above 0; `wanted` is what a refusal says was expected."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected {wanted}, found {text!r}")
    return int(text)


def share(text: str) -> tuple[int, int]:
    """Read one of several shares, the first being 1: ``3/8``."""
    number, _, count = text.partition("/")
    is_share = number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)
    if not is_share:
        raise argparse.ArgumentTypeError(
            f"expected I/N with I from 1 to N, such as 3/8, found {text!r}"
        )
    return int(number), int(count)


def called_columns(text: str) -> tuple[tuple[str, str], ...]:
    """Read columns with what a file calls them: ``query=question,relevant=answer``."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(expected and own for expected, _, own in pairs):
        raise argparse.ArgumentTypeError(f"expected NAME=YOURS,NAME=YOURS, found {text!r}")
    return tuple((expected.strip(), own.strip()) for expected, _, own in pairs)


def add_count(parser: argparse.ArgumentParser, option: str, default: int, about: str) -> None:
    """Add an option whose value is a whole number above 0."""
    parser.add_argument(
        option, type=positive, default=default, metavar="N", help=f"{about} (default: {default})"
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the option that lets a model's own code run."""
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="run code that comes with a model"
    )


@contextmanager
def faults_of(option: str) -> Iterator[None]:
    """Name the option whose value is at fault."""
    try:
        yield
    except UserError as error:
        raise UserError(*(f"{option}: {fault}" for fault in error.faults)) from error


def add_pooling(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Let a command take a pooling; `meaning` is the option's help."""
    parser.add_argument("--pooling", choices=get_args(PoolingName), help=meaning)


def recipes_complete(argument: argparse.Action) -> None:
    """Let a shell that argcomplete completes for offer the bundled recipes, beside files."""
    argument.completer = lambda prefix, **_: [*bundled.recipes(), *glob(f"{prefix}*")]  # type: ignore[attr-defined]


def choices_by_flag(
    pooling: str = "add --pooling cls or --pooling mean",
) -> AbstractContextManager[None]:
    """Name the flags by which a user says what a model leaves open; `pooling` is the way out of a
    command that has no such flag.
    """
    return ways_out(
        {
            PoolingNeeded: pooling,
            PoolerNeeded: "ask for random ones (--random-pooler)",
            CodeNotTrusted: "if you trust that, add --trust-remote-code",
        }
    )
