"""Documents, queries, and how relevant which document is to which query: from BEIR's files, or from
a corpus and a file of queries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as brief
from typing import Any

from st_jtcse.corpus_folder import CORPUS, ENDINGS, JUDGEMENTS, QUERIES, file_in
from st_jtcse.data.rows import Row, Source, checked_rows, number, read_rows, texts_of
from st_jtcse.errors import UserError

_JUDGED = ("query-id", "corpus-id", "score")
_PAIRS = ("query", "relevant")
# By query and document, the row's grade and its place.
_Graded = dict[tuple[str, str], tuple[int, str]]


@dataclass(frozen=True)
class JudgedCorpus:
    """A corpus that is searched, and the documents that should be found.

    Args:
        texts: What is encoded, a document's title before its text; by descending name.
        names: What is found, each once, in that order: documents, or the files that they are
            passages of, as the judgements name them.
        starts: Where each of them begins in `texts`, rising.
        queries: Texts of the queries with a relevant document.
        grades: Of each query, by place in `names`, how relevant it is: 1 or more.
        without: How many queries were left out, because no document is relevant to them.
        sha256: Hash of all of it.
    """

    texts: list[str]
    names: list[str]
    starts: list[int]
    queries: list[str]
    grades: list[dict[int, int]]
    without: int
    sha256: str


@dataclass(frozen=True)
class _Document:
    name: str
    text: str
    file: str | None  # which it is a passage of


def load_judged_corpus(source: Source) -> JudgedCorpus:
    """Read a corpus with queries.

    Args:
        source: `file` is a folder of `corpus`, `queries` and `qrels`, the last a file or a folder
            of them, as BEIR has them; without `qrels` the queries have the columns ``query`` and
            ``relevant``. Or it is the judgements' file beside the source's `corpus` and `queries`;
            its columns are [query's id, document's id, grade], or without `queries`
            [query, relevant].

    Raises:
        UserError: A file is missing or faulty; an id occurs twice or is not there; a grade is
            negative or no whole number; no query has a relevant document.
    """
    if source.file is None:
        raise UserError(f"{source.label}: expected files beside 'corpus'. Give 'file'.")
    corpus, queries, judgements = _files(source)
    documents = _documents(corpus)
    asked = None if queries is None else _queries(queries)
    graded = _judgements(replace(source, file=judgements), asked)
    return _joined(documents, asked, graded, corpus, judgements)


def _files(source: Source) -> tuple[Path, Path | None, Path]:
    """Return the files of documents, queries and judgements."""
    assert source.file is not None
    if source.corpus is not None:
        return source.corpus, source.queries, source.file
    folder = source.file
    corpus, queries = file_in(folder, CORPUS), file_in(folder, QUERIES)
    if corpus is None or queries is None:
        missing = CORPUS if corpus is None else QUERIES
        raise UserError(
            f"{folder}: expected {missing}.jsonl or .csv in it, found none. Add it, or name the "
            "files with 'corpus' and 'queries'."
        )
    judgements = file_in(folder, JUDGEMENTS) or _split(folder / JUDGEMENTS)
    if judgements is None:
        return (corpus, None, queries)
    return (corpus, queries, judgements)


def _split(folder: Path) -> Path | None:
    """Return the judgements in a folder, of several splits the test's."""
    files = sorted(path for path in folder.glob("*") if path.suffix in ENDINGS)
    if len(files) < 2:
        return next(iter(files), None)
    test = next((path for path in files if path.stem == "test"), None)
    if test is None:
        raise UserError(
            f"{folder}: expected test.tsv or one file, found {len(files)}. Name one with 'file', "
            "beside 'corpus' and 'queries'."
        )
    return test


def as_searched(title: Any, text: str) -> str:
    """Return what is encoded of a document: its title, if it has one, before its text."""
    return f"{title} {text}" if title else text


def _documents(path: Path) -> list[_Document]:
    seen: dict[str, str] = {}

    def parse(row: Row, columns: Sequence[str]) -> _Document:
        name = _unique(row, columns[0], seen)
        text = as_searched(row.values.get("title"), row.text(columns[1]))
        file = row.values.get("source")
        return _Document(name, text.strip(), file if isinstance(file, str) else None)

    documents = list(_checked(path, "documents", ("_id", "text"), parse))
    if len(documents) < 2:
        raise UserError(
            f"{path}: expected documents to rank, found {len(documents)}. Give the whole corpus."
        )
    return documents


def _queries(path: Path) -> dict[str, str]:
    seen: dict[str, str] = {}

    def parse(row: Row, columns: Sequence[str]) -> tuple[str, str]:
        return _unique(row, columns[0], seen), texts_of(row, columns[1:])[0]

    return dict(_checked(path, "queries", ("_id", "text"), parse))


def _judgements(source: Source, asked: dict[str, str] | None) -> _Graded:
    """Return the grade of each query and document, and where it is from."""
    graded: _Graded = {}
    default = _PAIRS if asked is None else _JUDGED[:2]
    key = "score" if source.columns is None or len(source.columns) < 3 else source.columns[2]

    def parse(row: Row, columns: Sequence[str]) -> None:
        query, document = (_name(row, column) for column in columns[:2])
        if asked is not None and query not in asked:
            raise UserError(
                f"{row.place}: the query {query!r} is not among the queries; correct its id."
            )
        grade = _grade(row, key)
        earlier, place = graded.setdefault((query, document), (grade, row.place))
        if earlier != grade:
            raise UserError(
                f"{row.place}: the grade is {grade} here and {earlier} at {place}; keep one."
            )

    list(checked_rows([source], "judgements", default, parse))
    return graded


def _grade(row: Row, key: str) -> int:
    given = row.values.get(key, 1)
    found = number(given)
    if found is None or found < 0 or found != int(found):
        raise UserError(
            f"{row.place}: expected a grade of 0 or more in {key!r}, found {brief(given)}; correct "
            "the row."
        )
    return int(found)


def _name(row: Row, column: str) -> str:
    given = row.values[column]
    name = str(given).strip() if isinstance(given, (str, int)) else ""
    if not name:
        raise UserError(f"{row.place}: expected an id in {column!r}, found {brief(given)}; add it.")
    return name


def _unique(row: Row, column: str, seen: dict[str, str]) -> str:
    """Return an id, which no other row may have; `seen` has the place of each."""
    name = _name(row, column)
    first = seen.setdefault(name, row.place)
    if first != row.place:
        raise UserError(f"{row.place}: the id {name!r} is that of {first} too; rename one.")
    return name


def _checked(path: Path, what: str, columns: tuple[str, str], parse: Any) -> Iterator[Any]:
    """Read rows with ids, whose column is called ``_id`` or ``id``."""
    source = Source(path)
    if not source.is_text:
        first = next(read_rows(source), None)
        if first is not None and "_id" not in first.values and "id" in first.values:
            columns = ("id", columns[1])
    return checked_rows([source], what, columns, parse, hint="")


def _joined(
    documents: list[_Document],
    asked: dict[str, str] | None,
    graded: _Graded,
    corpus: Path,
    judgements: Path,
) -> JudgedCorpus:
    names = _found_by(documents, graded)
    order = sorted(range(len(names)), key=lambda at: names[at], reverse=True)
    unique: list[str] = []
    starts: list[int] = []
    for place, at in enumerate(order):
        if not unique or unique[-1] != names[at]:
            unique.append(names[at])
            starts.append(place)
    _check_known(unique, graded, corpus)
    places = {name: place for place, name in enumerate(unique)}
    grades: dict[str, dict[int, int]] = {}
    for (query, document), (grade, _) in graded.items():
        own = grades.setdefault(query, {})
        if grade:
            own[places[document]] = grade
    # Without ids, the queries are their texts.
    texts = dict(zip(grades, grades)) if asked is None else asked
    kept = [query for query in texts if grades.get(query)]
    if len(kept) < 2:
        raise UserError(
            f"{judgements}: expected relevant documents of 2 queries or more, found {len(kept)}. "
            "Judge more queries."
        )
    found = JudgedCorpus(
        [documents[at].text for at in order],
        unique,
        starts,
        [texts[query] for query in kept],
        [grades[query] for query in kept],
        len(texts) - len(kept),
        "",
    )
    return replace(found, sha256=_sha256(found))


def _found_by(documents: list[_Document], graded: _Graded) -> list[str]:
    """Return what each document is found as: itself, or its file where the judgements name
    files.
    """
    names = [document.name for document in documents]
    judged = {document for _, document in graded}
    files = {document.file for document in documents}
    if judged.isdisjoint(names) and not judged.isdisjoint(files):
        return [document.file or document.name for document in documents]
    return names


def _check_known(names: list[str], graded: _Graded, corpus: Path) -> None:
    known = set(names)
    foreign = [(key[1], place) for key, (_, place) in graded.items() if key[1] not in known]
    if not foreign:
        return
    name, place = foreign[0]
    raise UserError(
        f"{place}: expected an id of {corpus}, found {name!r}, as in {len(foreign)} of "
        f"{len(graded)} rows. Correct the ids, or give the corpus that was judged."
    )


def _sha256(corpus: JudgedCorpus) -> str:
    digest = hashlib.sha256()
    for part in (corpus.names, corpus.starts, corpus.texts, corpus.queries, corpus.grades):
        for item in part:
            digest.update(json.dumps(item, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()
