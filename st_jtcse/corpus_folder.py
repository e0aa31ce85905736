"""What folders of text look like from outside: a corpus with queries, and documents."""

from __future__ import annotations

from pathlib import Path

CORPUS, QUERIES, JUDGEMENTS = "corpus", "queries", "qrels"
# Files of documents; alone, a .txt file is one of sentences.
DOCUMENTS = (".md", ".txt", ".html", ".htm", ".pdf", ".docx", ".rst")
_LINES = ".txt"
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
    is_wildcard = not place.exists() and any(mark in str(place) for mark in "*?[")
    return is_wildcard or (place.suffix.lower() in DOCUMENTS and place.suffix.lower() != _LINES)
