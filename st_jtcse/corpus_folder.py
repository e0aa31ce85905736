"""What a folder of a corpus with queries looks like: BEIR's names of files."""

from __future__ import annotations

from pathlib import Path

CORPUS, QUERIES, JUDGEMENTS = "corpus", "queries", "qrels"
ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet")


def is_judged_corpus(path: Path) -> bool:
    """Whether a folder has a corpus with queries."""
    return path.is_dir() and file_in(path, CORPUS) is not None


def file_in(folder: Path, name: str) -> Path | None:
    """Return the file of rows that is called so, whatever its ending; None without one."""
    found = (folder / f"{name}{ending}" for ending in ENDINGS)
    return next((path for path in found if path.is_file()), None)
