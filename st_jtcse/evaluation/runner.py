"""Runs what was selected, task by task; what is finished is kept."""

from __future__ import annotations

from collections.abc import Callable

from st_jtcse.errors import UserError
from st_jtcse.evaluation import report
from st_jtcse.evaluation.jobs import Context, Job
from st_jtcse.evaluation.models import Evaluated
from st_jtcse.evaluation.record import Record
from st_jtcse.evaluation.results import Results
from st_jtcse.evaluation.selection import Selection
from st_jtcse.evaluation.unavailable import DataUnavailable

# Told after each task: its key, and what it gave or why it gave nothing.
Progress = Callable[[str, Record | str], None]


def run(selection: Selection, evaluated: Evaluated, results: Results, batch_size: int, progress: Progress) -> None:
    """Run tasks that the results do not hold yet.

    Args:
        selection: What to run.
        evaluated: The model.
        results: Where results are kept, after each task.
        batch_size: Texts encoded at once.
        progress: Told of each task.

    Raises:
        UserError: The model's embeddings cannot be used.
    """
    context = Context(evaluated, batch_size)
    records: dict[str, Record] = {}
    for key, job in selection.jobs.items():
        before = results.record(key)
        outcome = before if before is not None and job.is_covered_by(before) else _outcome(job, context)
        if isinstance(outcome, str):
            results.miss(key, outcome)
        else:
            records[key] = results.add(key, outcome)
        for section in selection.sections:
            results.show(section.name, report.section(section, records))
        results.write()
        progress(key, outcome)


def _outcome(job: Job, context: Context) -> Record | str:
    try:
        record = job.run(context)
    except UserError:
        raise
    except DataUnavailable as reason:
        return f"{reason}."
    except Exception as error:  # One of hundreds of tasks may fail in MTEB; the others are still worth their time.
        return f"it failed with {type(error).__name__}: {' '.join(str(error).split())[:200].rstrip('.')}."
    # What is not finite was left out.
    if not all(record.main_score in subset for subsets in record.scores.values() for subset in subsets.values()):
        return f"{record.main_score} is not defined, as where all texts have the same embedding."
    return record
