"""Pictures by matplotlib, the same bytes each time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from st_jtcse.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Lines are told apart without colour too.
MARKERS = "osD^vP*X"
LINES = ("-", "--", "-.", ":")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty picture that no window shows.

    Args:
        width: In inches.
        height: In inches.

    Raises:
        UserError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError('Pictures need matplotlib; install it with: pip install "st-jtcse[plots]"') from error
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write the picture as PNG and SVG, the same bytes each time.

    Args:
        figure: The picture.
        folder: Where to.
        name: File name without its ending.
    """
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": name}):
        for kind in ("png", "svg"):
            partial = folder / f".{name}.partial"
            figure.savefig(partial, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
            partial.replace(folder / f"{name}.{kind}")
