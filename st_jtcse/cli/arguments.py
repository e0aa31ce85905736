"""Kinds of arguments that several commands take."""

from __future__ import annotations

import argparse


def positive(text: str, wanted: str = "a positive number") -> int:
    """Read a whole number above 0.

    Args:
        text: As typed.
        wanted: What the message says was expected.
    """
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected {wanted}, found {text!r}")
    return int(text)
