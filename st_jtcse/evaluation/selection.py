"""From the names of suites and tasks to what has to be run and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from st_jtcse.errors import UserError
from st_jtcse.evaluation.jobs import Job, Record
from st_jtcse.evaluation.senteval_data import STS, TRANSFER
from st_jtcse.evaluation.senteval_jobs import SentEvalJob, main_metric
from st_jtcse.evaluation.suites import Protocol, suites
from st_jtcse.wording import unknown

SENTEVAL = "senteval/"
TASKS = "tasks"


@dataclass(frozen=True)
class Line:
    """One line of a table.

    Args:
        label: How the paper or the user calls it.
        protocol: Whose task it shows.
        task: That task or set.
        metric: Metric shown; None for MTEB's main score of the task.
        subsets: Subsets it is the mean of; None for all.
        splits: Splits it is the mean of; None for all.
        pairs: SentEval set whose pairs stand in for the task's own.
        reported: The papers' figures, in percent.
        note: What to know when comparing.
    """

    label: str
    protocol: Protocol
    task: str
    metric: str | None
    subsets: tuple[str, ...] | None = None
    splits: tuple[str, ...] | None = None
    pairs: str | None = None
    reported: dict[str, float] = field(default_factory=dict)
    note: str | None = None

    @property
    def job(self) -> str:
        """Key of what is run for this line, which other lines may share."""
        return f"{self.protocol}/{self.task}" + (f" with the pairs of {self.pairs}" if self.pairs else "")

    def score(self, record: Record, metric: str | None = None) -> float | None:
        """Return a metric in percent: the mean over the line's splits of the mean over its subsets.

        Args:
            record: The job's result.
            metric: Another metric than the line's own.
        """
        metric = metric or self.metric or record.main_score
        means = []
        for split in self.splits or record.scores:
            subsets = record.scores.get(split, {})
            values = [subsets.get(subset, {}).get(metric) for subset in self.subsets or subsets]
            known = [value for value in values if value is not None]
            if not values or len(known) < len(values):
                return None
            means.append(sum(known) / len(known))
        return 100 * sum(means) / len(means)


@dataclass(frozen=True)
class Section:
    """One table.

    Args:
        name: The suite's name, or ``tasks``.
        source: Paper and table, if any.
        note: What to know when comparing.
        lines: Its lines.
        average: The papers' means, in percent.
    """

    name: str
    source: str | None
    note: str | None
    lines: tuple[Line, ...]
    average: dict[str, float]


@dataclass(frozen=True)
class Selection:
    """What was asked for.

    Args:
        sections: The tables, in the order asked for.
        jobs: What to run by key, each once however many lines show it.
    """

    sections: tuple[Section, ...]
    jobs: dict[str, Job]


def select(sections: Sequence[Section], folder: Path | None) -> Selection:
    """Find out what tables need, and read the local data among that.

    Args:
        sections: The tables.
        folder: Local data.

    Raises:
        UserError: A local file is faulty.
    """
    lines: dict[str, list[Line]] = {}
    for section in sections:
        for line in section.lines:
            lines.setdefault(line.job, []).append(line)
    return Selection(tuple(sections), {key: _job(together, folder) for key, together in lines.items()})


def suite_section(name: str) -> Section:
    """Return the table of a suite.

    Args:
        name: The suite's name.

    Raises:
        UserError: There is no such suite, or its tasks are not known.
    """
    known = suites()
    if name not in known:
        raise UserError(unknown("the name of a suite", name, known))
    suite = known[name]
    if suite.instead is not None:
        raise UserError(f"{name}: {suite.note} Use {suite.instead}, whose tasks are named.")
    lines = tuple(
        Line(
            row.paper,
            suite.protocol,
            row.task,
            suite.metric_of(row),
            row.subsets,
            suite.splits_of(row) if suite.protocol == "mteb" else None,
            row.pairs,
            row.reported,
            row.note,
        )
        for row in suite.rows
    )
    return Section(name, suite.source, suite.note, lines, suite.average)


def tasks_section(tasks: Sequence[str]) -> Section:
    """Return a table of tasks asked for one by one.

    Args:
        tasks: ``NAME``, ``NAME:SUBSET,SUBSET``, ``NAME@SPLIT`` or both, of MTEB; ``senteval/NAME`` of SentEval.

    Raises:
        UserError: There is no such task, subset or split.
    """
    return Section(TASKS, None, None, tuple(_line(task) for task in dict.fromkeys(tasks)), {})


def _line(task: str) -> Line:
    if task.startswith(SENTEVAL):
        name, known = task.removeprefix(SENTEVAL), (*STS, *TRANSFER)
        if name not in known:
            raise UserError(unknown("a set of SentEval", name, known))
        return Line(task, "senteval", name, main_metric(name))
    # After the cheap answers: MTEB takes seconds to import.
    from st_jtcse.evaluation.mteb_tasks import check_task

    rest, _, splits = task.partition("@")
    name, _, subsets = rest.partition(":")
    chosen = tuple(subsets.split(",")) if subsets else None, tuple(splits.split(",")) if splits else None
    check_task(name, *chosen)
    return Line(task, "mteb", name, None, *chosen)


def _job(lines: list[Line], folder: Path | None) -> Job:
    """Return the job of lines that show the same task."""
    task = lines[0].task
    if lines[0].protocol == "senteval":
        return SentEvalJob(task, folder)
    from st_jtcse.evaluation.mteb_tasks import MTEBJob

    subsets, splits = (_union([getattr(line, name) for line in lines]) for name in ("subsets", "splits"))
    return MTEBJob(task, subsets, splits, pairs=lines[0].pairs, folder=folder)


def _union(parts: list[tuple[str, ...] | None]) -> list[str] | None:
    """Return what all parts hold; None, which stands for everything, if one of them is."""
    names = dict.fromkeys(name for part in parts for name in part or ())
    return None if None in parts else list(names)
