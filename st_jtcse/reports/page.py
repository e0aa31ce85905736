"""A page that opens from disk: everything is inside it, and it asks nothing of the network."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from st_jtcse.records import VerdictRecord
from st_jtcse.reports.table import Table


@dataclass(frozen=True)
class Picture:
    """A picture, drawn twice: SVG files with a light background."""

    wide: bytes  # for a screen
    narrow: bytes  # for a phone
    alt: str  # what it shows, for those who do not see it

    @property
    def addresses(self) -> tuple[str, str]:
        """The wide and the narrow picture themselves, as addresses."""
        wide, narrow = (base64.b64encode(data).decode() for data in (self.wide, self.narrow))
        return f"data:image/svg+xml;base64,{wide}", f"data:image/svg+xml;base64,{narrow}"


@dataclass(frozen=True)
class Section:
    """A part of a page, in the order of its fields."""

    heading: str
    text: str = ""  # paragraphs, separated by blank lines
    table: Table | None = None
    picture: Picture | None = None
    # Paragraphs that tell of a regression, which are red.
    losses: Collection[str] = ()


def render_page(title: str, sections: Sequence[Section]) -> str:
    """Return a report as one HTML page, light or dark as its reader prefers; all text is
    escaped.
    """
    template = templates(Path(__file__).parent, autoescape=True).get_template("page.html.j2")
    return template.render(title=title, sections=sections)


_EQUAL = (
    "Equal: the interval of the difference holds zero, so this set cannot tell which of the two is "
    "better. It does not say that they are the same; a set of more items can tell more."
)


def verdict_section(heading: str, verdicts: Sequence[VerdictRecord]) -> Section:
    """Return a section of verdicts."""
    losses = {verdict.sentence for verdict in verdicts if verdict.verdict == "worse"}
    told = [verdict.sentence for verdict in verdicts]
    if any(verdict.verdict == "equal" for verdict in verdicts):
        told.append(_EQUAL)
    return Section(heading, "\n\n".join(told), losses=losses)


def grouped(told: Iterable[tuple[str, str]]) -> list[str]:
    """Return a paragraph for each different reason, after all the names that it was told of."""
    names: dict[str, list[str]] = {}
    for reason, name in told:
        names.setdefault(reason, []).append(name)
    return [f"{', '.join(named)}: {reason}" for reason, named in names.items()]


@cache
def templates(folder: Path, *, autoescape: bool) -> Environment:
    """Return the templates of a folder, in which a tag on a line of its own leaves no line; HTML is
    escaped.
    """
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
