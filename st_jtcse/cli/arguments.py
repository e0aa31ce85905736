"""Kinds of arguments that several commands take."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from glob import glob
from typing import Any, get_args

from st_jtcse import bundled
from st_jtcse.errors import CodeNotTrusted, PoolerNeeded, PoolingNeeded, UserError, ways_out
from st_jtcse.pooling_names import PoolingName
from st_jtcse.recipe.scale import WORKS, Scale

# The most that a run can be planned for: the order of texts is drawn in whole numbers of 4 bytes.
_MOST = {"texts": 2**31 - 1, "nodes": 100_000, "devices": 1_024}
_FASTEST = 1e18
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


def scale(text: str) -> Scale:
    """Read how large a run is to be: ``texts=1e8,nodes=4,devices=8,train=2000``."""
    pairs = [part.partition("=") for part in text.split(",")]
    found = {key.strip(): value.strip() for key, _, value in pairs}
    if len(found) < len(pairs):
        raise argparse.ArgumentTypeError(f"expected each key once, found {text!r}")
    if "texts" not in found:
        raise argparse.ArgumentTypeError(f"expected texts=NUMBER among its parts, found {text!r}")
    counts = {key: _count(key, found.pop(key)) for key in _MOST if key in found}
    rates = {key: _rate(key, value) for key, value in found.items()}
    bandwidth = rates.pop("bandwidth", None)
    return Scale(**counts, rates=rates, bandwidth=bandwidth)


def _count(key: str, value: str) -> int:
    number = _number(value)
    if not (number.is_integer() and 1 <= number <= _MOST[key]):
        raise argparse.ArgumentTypeError(
            f"expected {key} to be a whole number from 1 to {_MOST[key]:,}, found {value!r}"
        )
    return int(number)


def _rate(key: str, value: str) -> float:
    known = [*_MOST, *WORKS, "bandwidth"]
    work, _, stage = key.partition(".")
    if work not in known or (stage and work not in WORKS):
        told = ", ".join(known)
        raise argparse.ArgumentTypeError(
            f"expected one of {told}, or a rate's.STAGE, found {key!r}"
        )
    number = _number(value)
    if not 0 < number <= _FASTEST:
        raise argparse.ArgumentTypeError(
            f"expected {key} to be a number a second above 0, {_FASTEST:.0e} at most, found "
            f"{value!r}"
        )
    return number


def _number(value: str) -> float:
    """Read a number; what is none becomes NaN, which lies in no range."""
    try:
        return float(value)
    except ValueError:
        return math.nan


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
