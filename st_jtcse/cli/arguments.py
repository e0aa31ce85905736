"""Kinds of arguments that several commands take."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from st_jtcse.errors import UserError


def positive(text: str, wanted: str = "a positive number") -> int:
    """Read a whole number above 0.

    Args:
        text: As typed.
        wanted: What the message says was expected.
    """
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected {wanted}, found {text!r}")
    return int(text)


@contextmanager
def faults_of(option: str) -> Iterator[None]:
    """Name the option whose value is at fault.

    Args:
        option: As it is typed.
    """
    try:
        yield
    except UserError as error:
        raise UserError(*(f"{option}: {fault}" for fault in error.faults)) from error
