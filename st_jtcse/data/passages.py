"""Documents cut into passages: by their headings, and those by size."""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from st_jtcse.data.document_text import Unreadable, as_markdown, documents_in, root_of
from st_jtcse.errors import UserError

logger = logging.getLogger(__name__)

# Characters of a passage: of English about 200 tokens, which most models read whole.
SIZE = 1000
# A block of text is boilerplate where it stands in so many files, and in this share of them.
_FILES, _SHARE = 3, 0.1
_NAMED = 3  # Files that a message names
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Passage:
    """A passage of a document.

    Args:
        name: Its file and its number there.
        text: The text.
        title: The document's first heading, or its file's name.
        headings: What it stands below, the highest first.
        source: Its file, from the folder that was read.
    """

    name: str
    text: str
    title: str
    headings: tuple[str, ...]
    source: str

    @property
    def row(self) -> dict[str, Any]:
        """Its columns in a file."""
        return {
            "_id": self.name,
            "title": self.title,
            "text": self.text,
            "headings": list(self.headings),
            "source": self.source,
        }


@dataclass
class Report:
    """What became of the files."""

    place: Path
    files: int = 0
    passages: int = 0
    repeated: int = 0  # Blocks of text that were dropped
    # Files, by the reason.
    skipped: dict[str, list[str]] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """Say it."""
        left = sum(len(names) for names in self.skipped.values())
        told = [f"{self.place}: {self.passages} passages of {self.files - left} files"]
        if self.repeated:
            told.append(
                f"{self.place}: {self.repeated} blocks of text are left out, which repeat over "
                f"{_FILES} files or more and a tenth of all"
            )
        for reason, names in self.skipped.items():
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            named = ", ".join(names[:_NAMED])
            told.append(f"{self.place}: {len(names)} skipped, {reason}: {named}{more}")
        return told


def read_passages(place: Path, size: int = SIZE, report: Report | None = None) -> Iterator[Passage]:
    """Yield the passages of a folder's documents, of those that a wildcard names, or of one file.

    A document is cut at its headings, and what stands below one into passages of whole paragraphs
    or sentences. Paragraphs that repeat over files are left out.

    Args:
        place: Folder, wildcard or file.
        size: Most characters of a passage.
        report: Is completed; where none is given it is logged.

    Raises:
        UserError: There is no document, none has text, or a converter is not installed.
    """
    paths = documents_in(place)
    if not paths:
        raise UserError(
            f"{place}: expected files of documents (.md, .txt, .html, .pdf, .docx, .rst), found "
            "none. Give a folder with text, or with images."
        )
    told = Report(place) if report is None else report
    told.files = len(paths)
    # On the disk: of a hundred thousand files the text would fill the memory.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as kept:
        repeated = _convert(paths, root_of(place), kept, told)
        kept.seek(0)
        yield from _cut(kept, size, repeated, told)
    if not told.passages:
        reasons = "; ".join(line.partition(": ")[2] for line in told.lines[1:])
        reasons = reasons or "they hold headings alone"
        raise UserError(f"{place}: expected documents with text, found none ({reasons}).")
    if report is None:
        for line in told.lines:
            logger.warning("%s", line)


def _convert(paths: list[Path], root: Path, kept: IO[str], report: Report) -> set[bytes]:
    """Write each file's text into `kept`, and return the hashes of what repeats over files."""
    counts: Counter[bytes] = Counter()
    for path in paths:
        name = path.relative_to(root).as_posix()
        blocks: set[bytes] = set()
        try:
            for text in as_markdown(path):
                # Half a character, as a file may have it, is none.
                clean = text.encode("utf-8", "replace").decode("utf-8")
                kept.write(json.dumps([name, clean]) + "\n")
                blocks.update(_hash(block) for _, body in _sections(clean) for block in body)
        except Unreadable as reason:
            report.skipped.setdefault(str(reason), []).append(name)
        counts.update(blocks)
    least = max(_FILES, _SHARE * len(paths))
    return {block for block, count in counts.items() if count >= least}


def _cut(kept: IO[str], size: int, repeated: set[bytes], report: Report) -> Iterator[Passage]:
    splitter = _splitter(size)
    source, number, title = "", 0, ""
    for line in kept:
        name, text = json.loads(line)
        sections = list(_sections(text))
        if name != source:
            source, number = name, 0
            named = (headings[0] for headings, _ in sections if headings)
            title = next(named, Path(name).stem)
        for headings, body in sections:
            own = [block for block in body if _hash(block) not in repeated]
            report.repeated += len(body) - len(own)
            for chunk in splitter.chunks("\n\n".join(own)):
                passage = _plain(chunk)
                if not passage:
                    continue
                number += 1
                report.passages += 1
                yield Passage(f"{name}#{number}", passage, title, headings, name)


def _splitter(size: int) -> Any:
    try:
        from semantic_text_splitter import MarkdownSplitter
    except ImportError:
        raise UserError(
            "Folders of documents are cut by semantic-text-splitter, found none. "
            "pip install 'st-jtcse[documents]'."
        ) from None
    return MarkdownSplitter(size)


def _sections(text: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield what stands below each heading: the path of headings, and the blocks of text."""
    from markdown_it import MarkdownIt

    lines = text.split("\n")
    path: dict[int, str] = {}
    begin = 0
    tokens = MarkdownIt("commonmark").parse(text)
    for at, token in enumerate(tokens):
        if token.type != "heading_open" or token.map is None or token.level:
            continue
        yield tuple(path.values()), _blocks(lines[begin : token.map[0]])
        level = int(token.tag[1:])
        path = {other: name for other, name in path.items() if other < level}
        path[level] = _plain(tokens[at + 1].content)
        begin = token.map[1]
    yield tuple(path.values()), _blocks(lines[begin:])


def _blocks(lines: list[str]) -> list[str]:
    """Return paragraphs, code with its blank lines in one piece."""
    blocks: list[str] = []
    own: list[str] = []
    fence = ""
    for line in lines:
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        if line.strip() or fence:
            own.append(line)
        elif own:
            blocks.append("\n".join(own))
            own = []
    return [*blocks, "\n".join(own)] if own else blocks


def _hash(block: str) -> bytes:
    return blake2b(_SPACE.sub(" ", block).strip().encode(), digest_size=8).digest()


def _plain(text: str) -> str:
    """Return a passage in one line, without what keeps its lines from being headings."""
    return _SPACE.sub(" ", text.replace("\\#", "#")).strip()
