"""The shape of a row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One faulty input of one command, which runs in an empty folder."""

    name: str  # what is wrong, in words; no two rows share one
    command: str  # the command line; {model}, {corpus} and so on are what test_inputs.py makes
    sentence: str  # stands in what the command says on stderr, line breaks counted as spaces
    status: int = 2
    # What lies in the folder: text and bytes, or what is called with the path and the sound inputs
    # to make it; {model} and so on stand in texts and names too
    files: Mapping[str, str | bytes | Callable[[Path, Mapping[str, Path]], object]] = field(
        default_factory=dict
    )
    leaves: tuple[
        str, ...
    ] = ()  # what may be there afterwards that was not before; the rest is as it was
