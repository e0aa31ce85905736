"""From the names of suites and tasks to what has to be run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from st_jtcse.data import Source
from st_jtcse.errors import DataUnavailable, UserError
from st_jtcse.evaluation.jobs import EvaluationJob
from st_jtcse.evaluation.protocols import protocols, suites
from st_jtcse.evaluation.suites import Row, Suite
from st_jtcse.wording import unknown

if TYPE_CHECKING:
    from st_jtcse.evaluation.measured_sets import OwnSetJob


def select(tables: Sequence[Suite], folder: Path | None) -> dict[str, EvaluationJob | str]:
    """Return what to run for tables by key, each once however many rows show it, with its local
    data read.

    A reason stands for a job whose data cannot be had: the others run. Raises UserError where a
    file is faulty.
    """
    rows: dict[str, list[Row]] = {}
    for row in (row for suite in tables for row in suite.rows):
        rows.setdefault(row.job, []).append(row)
    jobs: dict[str, EvaluationJob | str] = {}
    for key, together in rows.items():
        try:
            jobs[key] = _job(together, folder)
        except DataUnavailable as reason:
            jobs[key] = f"{reason}."
    return jobs


def named_suite(name: str) -> Suite:
    """Return a suite; raises UserError if there is none of this name, or its tasks are
    not known.
    """
    known = suites()
    if name not in known:
        raise UserError(unknown("the name of a suite", name, known))
    suite = known[name]
    if suite.instead is not None:
        raise UserError(f"{name}: {suite.note} Use {suite.instead}, whose tasks are named.")
    return suite


def suite_of_tasks(tasks: Sequence[str]) -> Suite:
    """Return a table of tasks asked for one by one; raises UserError for an unknown task, subset or
    split.

    They are ``NAME``, ``NAME:SUBSET,SUBSET``, ``NAME@SPLIT`` or both, of MTEB; or as a
    protocol calls them, as ``senteval/NAME``.
    """
    return Suite.model_validate(
        {"name": "tasks", "rows": [_row(task) for task in dict.fromkeys(tasks)]}
    )


def own_sets(
    files: Sequence[Path],
    corpus: Path | None = None,
    called: tuple[tuple[str, str], ...] = (),
) -> tuple[Suite, dict[str, OwnSetJob]]:
    """Return a table of sets and their jobs by key; each is called by its file's name without the
    ending.

    Args:
        files: Files, and folders of a corpus with queries.
        corpus: What the queries of the one file are searched in; None: the files say it.
        called: Columns of sets, each with what the files call it.

    Raises:
        UserError: A file is faulty, or two have one name.
    """
    names = [path.stem for path in files]
    if again := next((name for name in names if names.count(name) > 1), None):
        raise UserError(
            f"two files are called {again!r}; rename one, because the scores are listed by file "
            "name."
        )
    # After the cheap answers: the clustering takes seconds to import.
    from st_jtcse.evaluation.own_sets import load_own_set

    hint = ", or say what they are called: --columns query=question,relevant=answer"
    own = []
    for file in files:
        source = Source(file, corpus=corpus, called=called)
        own.append(load_own_set(source, file.stem, hint=hint))
    rows = []
    for each in own:
        for label, metric in each.rows.items():
            note = each.note if label == each.name else None
            rows.append({"paper": label, "task": each.name, "metric": metric, "note": note})
    table = Suite.model_validate({"name": "data", "protocol": "data", "rows": rows})
    return table, {
        f"{table.protocol}/{each.name}": each.job(file.name) for each, file in zip(own, files)
    }


def _row(task: str) -> Mapping[str, Any]:
    for protocol in protocols():
        row = protocol.row(task)
        if row is not None:
            return row
    # After the cheap answers: MTEB takes seconds to import.
    from st_jtcse.evaluation.mteb_tasks import check_task

    rest, _, splits = task.partition("@")
    name, _, subsets = rest.partition(":")
    chosen = {
        "subsets": subsets.split(",") if subsets else None,
        "splits": splits.split(",") if splits else None,
    }
    check_task(name, **chosen)
    return {"paper": task, "task": name, **chosen}


def _job(rows: list[Row], folder: Path | None) -> EvaluationJob:
    """Return the job of rows that show the same task."""
    subsets = _together([row.subsets for row in rows])
    splits = _together([row.splits for row in rows])
    together = rows[0].model_copy(update={"subsets": subsets, "splits": splits})
    for protocol in protocols():
        job = protocol.job(together, folder)
        if job is not None:
            return job
    from st_jtcse.evaluation.mteb_tasks import MTEBJob

    return MTEBJob(together, folder)


def _together(parts: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Return what all rows hold; None, which stands for everything, if it is so in one of them."""
    found: dict[str, None] = {}
    for part in parts:
        if part is None:
            return None
        found |= dict.fromkeys(part)
    return tuple(found)
