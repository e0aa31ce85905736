"""How every picture looks, and how a figure becomes a file: the same numbers give the
same bytes.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from st_jtcse.errors import UserError
from st_jtcse.ownership import replace_ours
from st_jtcse.reports.page import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PictureFormat = Literal["svg", "png"]
# Inches: the column of a page on a screen and on a phone.
WIDE, NARROW = 11.0, 4.1

# Okabe and Ito's colours, which colour-blind people tell apart; of 7, 8 and 5 no two share a
# divisor, so that the 280 first series differ, and the 5 first even in grey.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
_MARKERS = "osD^vPX*"
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "figure.facecolor": "white",
    # A model may be called a_$b$.
    "text.parse_math": False,
    "svg.hashsalt": "st-jtcse",
    "savefig.dpi": 150,
}


def check_installed() -> None:
    """Refuse with a UserError to go on without matplotlib."""
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError:
        raise UserError(
            "Pictures need matplotlib; install it with: pip install 'st-jtcse[plots]'."
        ) from None


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house style, whatever the user's own settings, which come back; without
    matplotlib a UserError.
    """
    check_installed()
    from matplotlib import style

    with style.context(_SETTINGS, after_reset=True):
        yield


def panels(number: int, width: float, *, least: float, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure of `width` inches with `number` panels, of that height and as many in a row
    as `least` allows.
    """
    from matplotlib.figure import Figure

    down = math.ceil(number / max(1, int(width / least)))
    across = math.ceil(number / down)  # No row is much shorter than the others.
    figure = Figure(figsize=(width, height * down), layout="constrained")
    axes = list(np.ravel(figure.subplots(down, across, squeeze=False)))
    for spare in axes[number:]:
        spare.remove()
    return figure, axes[:number]


def series() -> Iterator[dict[str, Any]]:
    """Yield the look of one series after the other: no two alike, in colour or without."""
    for colour, marker, line in zip(cycle(_COLOURS), cycle(_MARKERS), cycle(_LINES)):
        yield {"color": colour, "marker": marker, "linestyle": line}


def legend_name(name: str) -> str:
    """Return a name that a legend shows: matplotlib hides those that begin with an underscore."""
    return f" {name}" if name.startswith("_") else name


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend of some axes below all of a figure, in as many columns as fit and with long
    names broken.
    """
    handles, labels = axes.get_legend_handles_labels()
    width = figure.get_figwidth()
    labels = [textwrap.fill(label, int(9 * width)) for label in labels]
    longest = max((len(line) for label in labels for line in label.splitlines()), default=0)
    columns = min(len(labels), int(width / (0.6 + 0.085 * longest)))
    figure.legend(handles, labels, loc="outside lower center", ncols=max(1, columns))


def picture(draw: Callable[[float], Figure], alt: str, wide: bytes | None = None) -> Picture:
    """Return a page's picture by the function that draws it in a width; `wide` where that one is
    drawn already.
    """
    return Picture(wide or to_bytes(draw(WIDE), "svg"), to_bytes(draw(NARROW), "svg"), alt)


def to_bytes(figure: Figure, picture_format: PictureFormat) -> bytes:
    """Return a figure as a file's content, without date."""
    buffer = io.BytesIO()
    with house_style():
        metadata = {"Date": None} if picture_format == "svg" else {"Software": None}
        figure.savefig(buffer, format=picture_format, metadata=metadata)
    return buffer.getvalue()


def save(
    figure: Figure,
    folder: Path,
    name: str,
    write: Callable[[Path, bytes], None] = replace_ours,
) -> bytes:
    """Write a picture as PNG and as SVG, each whole or not at all, and return the SVG."""
    contents = {kind: to_bytes(figure, kind) for kind in get_args(PictureFormat)}
    for kind, content in contents.items():
        write(folder / f"{name}.{kind}", content)
    return contents["svg"]
