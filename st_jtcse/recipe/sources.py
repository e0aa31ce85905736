"""What the sources of a recipe are to those who read rows, and their columns, looked at ahead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from st_jtcse.data.column_names import LABELLED
from st_jtcse.data.document_text import is_document
from st_jtcse.data.pairs import columns_of_pairs
from st_jtcse.data.rows import Source, checked_rows, texts_in
from st_jtcse.evaluation.set_columns import holds_sentences, is_searched, kind_of_set
from st_jtcse.recipe.blocks import SourceSpec
from st_jtcse.recipe.data_blocks import DataSpec, DevSpec, EvaluateSpec, SetSpec
from st_jtcse.recipe.schema import StageSpec

# What else helps where a set has other columns.
SET_HINT = ", or say what they are called, e.g. columns: {query: question, relevant: answer}"


def source_of(spec: SourceSpec) -> Source:
    """Return what is read by a source of a recipe."""
    kind = SetSpec if isinstance(spec, SetSpec) else SourceSpec
    given = {key: getattr(spec, key) for key in kind.model_fields}
    for key in given.keys() & {"file", "corpus", "queries"}:
        given[key] = Path(given[key]) if given[key] else None
    columns = given.pop("columns")
    if isinstance(columns, dict):
        given["called"] = tuple(columns.items())
    elif columns:
        given["columns"] = tuple(columns)
    return Source(**given)


def check_columns(stages: Iterable[StageSpec]) -> None:
    """Raise UserError where the first row of a table lacks columns that its stage reads, as reading
    all of it would.
    """
    for stage in stages:
        if stage.training_data is not None:
            _check_training(stage.training_data)
        if stage.evaluate is not None:
            _check_sets(stage.evaluate)


def _check_training(data: DataSpec) -> None:
    for source in _begun(data.sources):
        if data.train:
            next(texts_in(source), None)
        else:
            # As labelled rows are read: a column of another name is called as the reader does.
            columns = LABELLED["scores" if data.bins else data.labels]
            _check_row(replace(source, columns=source.expected), "labelled rows", columns)


def _check_sets(evaluate: EvaluateSpec) -> None:
    measured = {name: spec for name, spec in evaluate.sets.items() if not _is_made(spec)}
    for name, spec in measured.items():
        for source in _begun([spec]):
            if name in evaluate.general and holds_sentences(source):
                next(texts_in(source), None)
            elif source.columns is not None:
                _check_row(source, "pairs", columns_of_pairs(source, "pairs"))
            else:
                kind_of_set(source, SET_HINT)


def _is_made(spec: SourceSpec) -> bool:
    return isinstance(spec, DevSpec) and spec.made is not None


def _begun(specs: Iterable[SourceSpec]) -> Iterator[Source]:
    """Yield the first rows of files whose reading takes no library."""
    for spec in specs:
        source = source_of(spec)
        file = source.file
        if file is None or not file.is_file() or file.suffix == ".parquet" or is_document(file):
            continue
        if not is_searched(source):
            yield replace(source, limit=1)


def _check_row(source: Source, what: str, columns: tuple[str, ...]) -> None:
    next(checked_rows([source], what, columns, lambda row, names: row), None)
