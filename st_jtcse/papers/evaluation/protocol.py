"""What the papers add to ``st-eval``: suites, SentEval's tasks, how their checkpoints embed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from st_jtcse.errors import DataUnavailable, UserError
from st_jtcse.evaluation.protocols import EvaluationProtocol, Usage
from st_jtcse.evaluation.suites import Row, Suite, read_suites
from st_jtcse.wording import unknown

if TYPE_CHECKING:
    from st_jtcse.evaluation.jobs import EvaluationJob
    from st_jtcse.evaluation.mteb_tasks import MTEBJob
    from st_jtcse.papers.evaluation.senteval_data import EvaluationSet

SENTEVAL = "senteval/"
# MTEB tasks with the very pairs of a SentEval set, which a local folder may hold for both.
SAME_PAIRS = {**{f"STS{year}": f"STS{year}" for year in range(12, 17)}, "STSBenchmark": "STSB"}


class PapersProtocol(EvaluationProtocol):
    """The suites of the papers' tables, SentEval's sets, and the checkpoints that they compare."""

    def suites(self) -> Mapping[str, Suite]:
        """Return the tables of suites.yaml."""
        return read_suites(Path(__file__).with_name("suites.yaml"))

    def row(self, task: str) -> Mapping[str, Any] | None:
        """Return the row of ``senteval/NAME``."""
        if not task.startswith(SENTEVAL):
            return None
        # After the cheap answers: scikit-learn takes seconds to import.
        from st_jtcse.papers.evaluation.senteval_data import STS, TRANSFER, main_metric

        name, known = task.removeprefix(SENTEVAL), (*STS, *TRANSFER)
        if name not in known:
            raise UserError(unknown("a set of SentEval", name, known))
        return {"paper": task, "protocol": "senteval", "task": name, "metric": main_metric(name)}

    def job(self, row: Row, folder: Path | None) -> EvaluationJob | None:
        """Return a set of SentEval, or a task of MTEB that its pairs stand in for."""
        is_known = row.task in SAME_PAIRS and folder is not None
        if row.protocol == "senteval":
            from st_jtcse.papers.evaluation.senteval_data import SentEvalJob

            return SentEvalJob(row.task, folder)
        if row.protocol == "mteb" and (row.pairs is not None or is_known):
            return _with_pairs(row, folder)
        return None

    def usage(self, model: str) -> Usage | None:
        """Return how published.yaml says that a checkpoint embeds."""
        from st_jtcse.papers.evaluation.published import as_published

        known = as_published(model)
        if known is None:
            return None
        return Usage({"pooling": known.pooling, "template": known.template}, str(known))


def _with_pairs(row: Row, folder: Path | None) -> MTEBJob:
    """Return a task of MTEB with a set's pairs; where the row names none, if it has no data."""
    from st_jtcse.evaluation.mteb_tasks import MTEBJob
    from st_jtcse.papers.evaluation.senteval_data import load_sts

    job = MTEBJob(row, None if row.pairs else folder)
    if row.pairs is not None:
        _fill(job, load_sts(row.pairs, folder))
    elif job.sha256 is None:
        with suppress(DataUnavailable):
            _fill(job, load_sts(SAME_PAIRS[row.task], folder, hub=False))
    return job


def _fill(job: MTEBJob, found: EvaluationSet) -> None:
    columns: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for subset in found.content.values():
        for column, cells in zip(columns, subset):
            column += cells
    job.fill(columns, found.source, found.sha256)
