"""Runs what was selected, task by task; what is finished is kept."""

from __future__ import annotations

from collections.abc import Callable

from st_jtcse.errors import UserError
from st_jtcse.evaluation.evaluated import Evaluated
from st_jtcse.evaluation.jobs import Context, DataUnavailable, Job, Record
from st_jtcse.evaluation.results import Results
from st_jtcse.evaluation.selection import Selection
from st_jtcse.evaluation.suite_scores import suite_scores

# Told after each task: its key, and what it gave or why it gave nothing.
Progress = Callable[[str, Record | str], None]


def run_tasks(
    selection: Selection, evaluated: Evaluated, results: Results, batch_size: int, progress: Progress
) -> None:
    """Run tasks, as far as the results do not hold them yet.

    Raises:
        UserError: The model's embeddings cannot be used.
    """
    context = Context(evaluated, batch_size)
    records: dict[str, Record] = {}
    for key, job in selection.jobs.items():
        outcome = _outcome(key, job, context, results)
        if isinstance(outcome, str):
            results.data["missing"][key] = outcome
        else:
            records[key] = outcome
            results.keep(key, outcome)
        for suite in selection.suites:
            results.data["suites"][suite.name] = suite_scores(suite, records)
        results.write()
        progress(key, outcome)


def _outcome(key: str, job: Job, context: Context, results: Results) -> Record | str:
    def keep(record: Record) -> None:
        if record.is_defined:
            results.keep(key, record)
            results.write()

    before = results.record(key)
    try:
        record = job.run(context, before if before and before.data == job.data else None, keep)
    except UserError:
        raise
    except DataUnavailable as reason:
        return f"{reason}."
    except Exception as error:  # One of hundreds of tasks may fail in MTEB; the others are still worth their time.
        return f"it failed with {type(error).__name__}: {' '.join(str(error).split())[:200].rstrip('.')}."
    if not record.is_defined:
        return f"{record.main_score} is not defined, as where all texts have the same embedding."
    return record
