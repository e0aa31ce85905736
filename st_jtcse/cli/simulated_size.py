"""The option `--simulate`: how large a run is to be."""

from __future__ import annotations

import argparse
import math

from st_jtcse.recipe.scale import WORKS, Scale

# The most that a run can be planned for: the order of texts is drawn in whole numbers of 4 bytes.
_MOST = {"texts": 2**31 - 1, "nodes": 100_000, "devices": 1_024}
_FASTEST = 1e18


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
