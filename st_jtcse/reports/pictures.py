"""Writes pictures beside a report's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from st_jtcse.diagnostics.drawing import to_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a picture as PNG and as SVG; neither is ever seen half-written.

    Args:
        figure: The picture.
        folder: Where to.
        name: File name without its ending.
    """
    partial = folder / f".{name}.partial"
    partial.write_bytes(to_bytes(figure, "png"))
    partial.replace(folder / f"{name}.png")
    partial.write_bytes(to_bytes(figure, "svg"))
    partial.replace(folder / f"{name}.svg")
