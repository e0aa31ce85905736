"""What folders of text look like from outside: a corpus with queries, and documents."""

from __future__ import annotations

import os
import re
from pathlib import Path

CORPUS, QUERIES, JUDGEMENTS = "corpus", "queries", "qrels"
# Files of documents; alone, a .txt file is one of sentences.
DOCUMENTS = (".md", ".txt", ".html", ".htm", ".pdf", ".docx", ".rst")
_LINES = ".txt"
# What makes a pattern of a path.
WILD = re.compile(r"[*?\[]")
_BEGIN = 4096  # Bytes of a file that say whether it is one of passages
ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet")


def is_judged_corpus(path: Path) -> bool:
    """Whether a folder has a corpus with queries."""
    return path.is_dir() and file_in(path, CORPUS) is not None


def file_in(folder: Path, name: str) -> Path | None:
    """Return the file of rows that is called so, whatever its ending; None without one."""
    found = (folder / f"{name}{ending}" for ending in ENDINGS)
    return next((path for path in found if path.is_file()), None)


def holds_passages(place: Path) -> bool:
    """Whether a source of training text is one of documents, or of passages of them, rather than
    of lines; nothing is read but the beginning of a file.
    """
    if place.is_dir():
        return any(path.suffix.lower() in DOCUMENTS for path in place.rglob("*"))
    if place.suffix == ".jsonl" and place.is_file():
        with place.open("rb") as file:
            begin = file.read(_BEGIN)
        return b'"_id"' in begin and b'"text"' in begin
    return is_wildcard(place) or (place.suffix.lower() in DOCUMENTS and place.suffix != _LINES)


def is_wildcard(place: Path) -> bool:
    """Whether a path stands for files by a pattern."""
    return not os.path.exists(place) and WILD.search(str(place)) is not None
