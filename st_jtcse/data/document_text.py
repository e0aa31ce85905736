"""Files of documents as Markdown: Markdown itself, plain text, HTML, PDF, Word and
reStructuredText.
"""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from st_jtcse.corpus_folder import WILD, is_wildcard
from st_jtcse.errors import UserError

_LARGEST = 64 << 20  # Bytes of a file that is converted as a whole
_BLOCK = 8 << 20  # Bytes of a larger plain one that are read at a time
_FEWEST = 20  # Letters and digits of a page, on average; one of a scan has none
_WORD = re.compile(r"\w")
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
# A word that a line's end breaks, as PDF has them.
_BROKEN = re.compile(r"(?<=[^\W\d_])-\n(?=[a-zà-öø-ÿ])")
# A line that begins as a heading, and is none in plain text.
_HASH = re.compile(r"^( {0,3})#", re.MULTILINE)
# Tags whose text is kept without them.
_LOOKS = ["a", "img", "b", "strong", "em", "i", "code"]
_FURNITURE = ("script", "style", "nav", "header", "footer", "aside", "form", "noscript", "template")


class Unreadable(Exception):
    """A file without text that can be had; says why in a word or a few."""


def documents_in(place: Path) -> list[Path]:
    """Return the files of documents in a folder, or by a wildcard, each once, sorted; a file is
    itself.

    Hidden files and folders are left out, and links to folders are not followed.
    """
    if place.is_file():
        return [place]
    root, pattern = _parts(place)
    if place.is_dir():
        found: Iterator[Path] = _walk(place)
    else:
        found = (path for path in root.glob(pattern) if path.suffix.lower() in READERS)
    once: dict[str, Path] = {}
    for path in sorted(found):
        if path.is_file():
            once.setdefault(os.path.realpath(path), path)
    return list(once.values())


def root_of(place: Path) -> Path:
    """Return the folder that the names of documents begin at."""
    if place.is_dir():
        return place
    if is_wildcard(place):
        return _parts(place)[0]
    return place.parent


def is_document(path: Path) -> bool:
    """Whether a file is one of documents; plain text alone is one of sentences."""
    return path.suffix.lower() in READERS and path.suffix.lower() != ".txt"


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(parent, name)
            if not name.startswith(".") and path.suffix.lower() in READERS:
                yield path


def _parts(place: Path) -> tuple[Path, str]:
    """Return the folder above the first part with a wildcard, and the pattern below it."""
    parts = place.parts
    first = next((at for at, part in enumerate(parts) if WILD.search(part)), len(parts) - 1)
    return Path(*parts[:first]), str(Path(*parts[first:]))


def as_markdown(path: Path) -> Iterator[str]:
    """Yield a file's text as Markdown, a large plain one in blocks of whole lines.

    Raises Unreadable where there is none; UserError where a converter is not installed.
    """
    suffix = path.suffix.lower()
    try:
        size = path.stat().st_size
        if size == 0:
            raise Unreadable("empty")
        if size > _LARGEST and suffix in (".txt", ".md"):
            yield from _blocks(path)
            return
        if size > _LARGEST:
            raise Unreadable(f"larger than {_LARGEST >> 20} MiB")
        with _installed(), _quiet():
            text = READERS[suffix](path.read_bytes())
    except OSError as error:
        raise Unreadable(error.strerror or "unreadable") from None
    if not _WORD.search(text):
        raise Unreadable("without text")
    yield text


def _blocks(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        while lines := file.readlines(_BLOCK):
            yield _decoded(b"".join(lines))


@contextmanager
def _installed() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"Folders of documents are read by {error.name}, found none. "
            "pip install 'st-jtcse[documents]'."
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Let no converter say what it thinks of a file."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _decoded(raw: bytes) -> str:
    """Return text of whatever encoding; raises Unreadable where it has none."""
    from bs4.dammit import UnicodeDammit

    # After a byte order mark, which says it: the web's two most frequent ones, then a guess.
    text = UnicodeDammit(raw, user_encodings=["utf-8", "windows-1252"]).unicode_markup
    if text is None or "\0" in text:
        raise Unreadable("no text, or of an unknown encoding")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _plain(raw: bytes) -> str:
    return _HASH.sub(r"\1\\#", _decoded(raw))


def _markdown(raw: bytes) -> str:
    from markdown_it import MarkdownIt

    text = _FRONT_MATTER.sub("", _decoded(raw))
    return _html(MarkdownIt("commonmark").enable("table").render(text))


def _html(raw: bytes | str) -> str:
    from bs4 import BeautifulSoup
    from markdownify import ATX, MarkdownConverter

    soup = BeautifulSoup(raw, "html.parser")
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    for furniture in soup.find_all(_FURNITURE):
        furniture.decompose()
    body = soup.find("main") or soup.body or soup
    how: dict[str, Any] = {"heading_style": ATX, "strip": _LOOKS}
    how |= {"escape_asterisks": False, "escape_underscores": False}
    text: str = MarkdownConverter(**how).convert_soup(body)
    # A page's own heading says more than the title, which the site's name is often part of.
    return text if not title or body.find("h1") else f"# {title}\n\n{text}"


def _pdf(raw: bytes) -> str:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(io.BytesIO(raw))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("encrypted")
        pages = [page.extract_text() for page in reader.pages]
    except Unreadable:
        raise
    except PyPdfError:
        raise Unreadable("damaged") from None
    except ImportError:  # Which some kinds of encryption need.
        raise Unreadable("encrypted") from None
    except Exception:  # As many as there are ways in which a PDF is damaged.
        raise Unreadable("damaged") from None
    text = "\n\n".join(pages)
    if len(_WORD.findall(text)) < _FEWEST * len(pages):
        raise Unreadable("scanned, without text")
    return _HASH.sub(r"\1\\#", _BROKEN.sub("", text))


def _word(raw: bytes) -> str:
    import mammoth

    try:
        return _html(mammoth.convert_to_html(io.BytesIO(raw)).value)
    except ImportError:
        raise
    except Exception:  # As many as there are ways in which an archive is damaged.
        raise Unreadable("damaged, or encrypted") from None


def _restructured(raw: bytes) -> str:
    from docutils.core import publish_parts

    # Nothing that the text names is read or run, and no fault in it ends the reading.
    how = {
        "file_insertion_enabled": False,
        "raw_enabled": False,
        "report_level": 5,
        "halt_level": 5,
        "initial_header_level": 1,
        "doctitle_xform": False,
        "embed_stylesheet": False,
    }
    parts = publish_parts(_decoded(raw), writer="html5", settings_overrides=how)
    return _html(parts["html_body"])


READERS: dict[str, Callable[[bytes], str]] = {
    ".md": _markdown,
    ".txt": _plain,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
    ".docx": _word,
    ".rst": _restructured,
}
