"""Text in Markdown and YAML in fences: shown as they are, whatever they hold.

A model's folder may be called ``<script>``, and a file of sentences ``[a](b)``.
"""

from __future__ import annotations

import re

_AS_TEXT = str.maketrans({"&": "&amp;", "<": "&lt;"} | {mark: f"\\{mark}" for mark in "\\`*[]|~"})


def as_text(text: object) -> str:
    """Write text so that Markdown shows it on one line, and takes none of it for markup."""
    return " ".join(str(text).translate(_AS_TEXT).split())


def fence(text: str) -> str:
    """Return the marks before and behind a block of code, which nothing in it can end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(3, longest + 1)
