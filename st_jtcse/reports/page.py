"""A page that opens from disk: everything is inside it, and it asks nothing of the network."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from st_jtcse.reports.table import Table


@dataclass(frozen=True)
class Picture:
    """A picture."""

    data: bytes  # content of a PNG or SVG file with a light background
    alt: str  # what it shows, for those who do not see it
    least_width: int = 0  # width in CSS pixels at which it can still be read: a narrower screen scrolls over it

    @property
    def address(self) -> str:
        """The picture itself, as an address."""
        if self.data.startswith(b"\x89PNG"):
            kind = "image/png"
        elif self.data.lstrip().startswith((b"<?xml", b"<svg")):
            kind = "image/svg+xml"
        else:
            raise ValueError("A page's pictures are PNG or SVG.")
        return f"data:{kind};base64,{base64.b64encode(self.data).decode()}"


@dataclass(frozen=True)
class Section:
    """A part of a page, in the order of its fields."""

    heading: str
    text: str = ""  # paragraphs, separated by blank lines
    table: Table | None = None
    picture: Picture | None = None


def render_page(title: str, sections: Sequence[Section]) -> str:
    """Return a report as one HTML page, light or dark as its reader prefers; all text is escaped."""
    template = templates(Path(__file__).parent, autoescape=True).get_template("page.html.j2")
    return template.render(title=title, sections=sections)


@cache
def templates(folder: Path, *, autoescape: bool) -> Environment:
    """Return the templates of a folder, in which a tag on a line of its own leaves no line; HTML is escaped."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
