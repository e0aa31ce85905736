"""From the names of suites and tasks to what has to be run and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from st_jtcse.errors import UserError
from st_jtcse.evaluation.jobs import Job, MTEBJob, STSJob, TransferJob
from st_jtcse.evaluation.record import Record
from st_jtcse.evaluation.senteval_data import STS, TRANSFER
from st_jtcse.evaluation.suites import Row, Suite, suites
from st_jtcse.wording import unknown

SENTEVAL = "senteval/"
TASKS = "tasks"


@dataclass(frozen=True)
class Line:
    """One line of a table.

    Args:
        label: How the paper or the user calls it.
        job: Key of the job whose scores it shows.
        metric: Metric shown; None for MTEB's main score of the task.
        subsets: Subsets it is the mean of; None for all.
        splits: Splits it is the mean of; None for all.
        reported: The papers' figures, in percent.
        note: What to know when comparing.
    """

    label: str
    job: str
    metric: str | None
    subsets: tuple[str, ...] | None = None
    splits: tuple[str, ...] | None = None
    reported: dict[str, float] = field(default_factory=dict)
    note: str | None = None

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


@dataclass
class _Part:
    """What all lines together want of one MTEB task."""

    name: str
    pairs: str | None
    subsets: tuple[str, ...] | None
    splits: tuple[str, ...] | None

    def widen(self, subsets: tuple[str, ...] | None, splits: tuple[str, ...] | None) -> None:
        self.subsets = None if None in (self.subsets, subsets) else tuple({*(self.subsets or ()), *(subsets or ())})
        self.splits = None if None in (self.splits, splits) else tuple({*(self.splits or ()), *(splits or ())})


def select(suite_names: Sequence[str], tasks: Sequence[str], folder: Path | None) -> Selection:
    """Find suites and tasks, and read the local data they use.

    Args:
        suite_names: Names of suites.
        tasks: ``NAME``, ``NAME:SUBSET,SUBSET``, ``NAME@SPLIT`` or both, of MTEB; ``senteval/NAME`` of SentEval.
        folder: Local data.

    Raises:
        UserError: A name is unknown, or a local file is faulty.
    """
    sections = [_section(name) for name in dict.fromkeys(suite_names)]
    if tasks:
        sections.append(Section(TASKS, None, None, tuple(_line(task) for task in dict.fromkeys(tasks)), {}))
    if not sections:
        raise UserError("Nothing to evaluate: give --suite or --task; st-eval --list shows the suites.")
    senteval: dict[str, Job] = {}
    parts: dict[str, _Part] = {}
    for section in sections:
        for line in section.lines:
            protocol, name = line.job.split("/", 1)
            if protocol == "senteval":
                senteval.setdefault(line.job, STSJob(name, folder) if name in STS else TransferJob(name, folder))
                continue
            task, _, pairs = name.partition(" with the pairs of ")
            if line.job in parts:
                parts[line.job].widen(line.subsets, line.splits)
            else:
                parts[line.job] = _Part(task, pairs or None, line.subsets, line.splits)
    mteb = {
        key: MTEBJob(part.name, part.subsets, part.splits, pairs=part.pairs, folder=folder)
        for key, part in parts.items()
    }
    order = dict.fromkeys(line.job for section in sections for line in section.lines)
    return Selection(tuple(sections), {key: (senteval | mteb)[key] for key in order})


def _section(name: str) -> Section:
    known = suites()
    if name not in known:
        raise UserError(f"--suite: {unknown('the name of a suite', name, known)}")
    suite = known[name]
    if suite.instead is not None:
        raise UserError(f"--suite {name}: {suite.note} Use --suite {suite.instead}, whose tasks are named.")
    return Section(name, suite.source, suite.note, tuple(_row(suite, row) for row in suite.rows), suite.average)


def _row(suite: Suite, row: Row) -> Line:
    metric = suite.metric_of(row)
    if suite.protocol == "senteval":
        return Line(row.paper, f"{SENTEVAL}{row.task}", metric, reported=row.reported, note=row.note)
    job = f"mteb/{row.task}" + (f" with the pairs of {row.pairs}" if row.pairs else "")
    return Line(row.paper, job, metric, row.subsets, suite.splits_of(row), row.reported, row.note)


def _line(task: str) -> Line:
    if task.startswith(SENTEVAL):
        name, known = task.removeprefix(SENTEVAL), (*STS, *TRANSFER)
        if name not in known:
            raise UserError(f"--task: {unknown('a set of SentEval', name, known)}")
        return Line(task, task, STSJob.metric if name in STS else TransferJob.metric)
    rest, _, splits = task.partition("@")
    name, _, subsets = rest.partition(":")
    chosen = tuple(subsets.split(",")) if subsets else None, tuple(splits.split(",")) if splits else None
    return Line(task, f"mteb/{name}", None, *chosen)
