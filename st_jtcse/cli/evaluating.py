"""One model's turn of `st-eval`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from st_jtcse import processes
from st_jtcse.cli import console
from st_jtcse.cli.arguments import choices_by_flag, faults_of
from st_jtcse.errors import UserError
from st_jtcse.evaluation.given_models import load_model
from st_jtcse.evaluation.jobs import Evaluated
from st_jtcse.evaluation.measured_sets import OwnSet, OwnSetJob, Statistic
from st_jtcse.evaluation.results import PAGE, Results
from st_jtcse.evaluation.searching import SearchJob
from st_jtcse.evaluation.shared_encoding import shared
from st_jtcse.evaluation.suites import Suite
from st_jtcse.evaluation.verdict import Verdict, compare
from st_jtcse.hub.cards import update_card
from st_jtcse.records import Beside, SuiteScores
from st_jtcse.reports.evaluation_report import (
    FEW,
    search_table,
    suite_table,
    write_evaluation,
    write_markdown,
)
from st_jtcse.reports.search_report import SearchedTwice, changed_results, search_section


class WithoutScore(NamedTuple):
    """What has no score of one model."""

    keys: list[str]  # of tasks
    faults: list[str]  # of the model or the set, in sentences


def check_device(name: str) -> None:
    """Refuse a device on which nothing can be computed here."""
    try:
        torch.ones(1, device=name).item()
    except Exception as error:  # As many as there are kinds of devices.
        reason = str(error).partition("\n")[0].partition(". ")[0][:200]
        raise UserError(
            f"--device: {name!r} cannot be used here ({reason}); choose another, e.g. cpu."
        ) from error


def evaluate_one(
    options: argparse.Namespace,
    at: int,
    tables: Sequence[Suite],
    jobs: Mapping[str, Any],
    own: Sequence[OwnSetJob],
) -> WithoutScore:
    """Evaluate one of the models, beside the first of several."""
    evaluated = _loaded(options, at)
    found = shared(evaluated.model, lambda: _evaluated(evaluated, options, at, tables, jobs, own))
    assert found is not None
    return found


def serve(options: argparse.Namespace) -> None:
    """Encode, in another process than the first, what that one evaluates the models on."""
    for at in range(len(options.models)):
        shared(_loaded(options, at).model, lambda: None)


def _loaded(options: argparse.Namespace, at: int) -> Evaluated:
    """Load one of the models, which is to be the same in all processes."""
    with choices_by_flag():
        how = ("pooling", "revision", "trust_remote_code", "device")
        evaluated = load_model(options.models[at], **{name: getattr(options, name) for name in how})
    if len(set(processes.gathered(evaluated.sha256))) > 1:
        raise UserError(
            f"{options.models[at]}: the processes found different models there; give all the same."
        )
    return evaluated


def _evaluated(
    evaluated: Evaluated,
    options: argparse.Namespace,
    at: int,
    tables: Sequence[Suite],
    jobs: Mapping[str, Any],
    own: Sequence[OwnSetJob],
) -> WithoutScore:
    model, folder = options.models[at], options.output_dirs[at]
    if evaluated.note:
        _tell_note(evaluated.note, options)
    # Others will read it: where the model lies here is nothing to them.
    if options.card:
        evaluated = replace(evaluated, name=Path(model).absolute().name)
    with faults_of("--output-dir"):
        results = Results(evaluated, folder)

    if len(options.models) > 1:
        console.say(model)
    with _displayed(list(jobs)) as tell:

        def progress(key: str, outcome: Any) -> None:
            if outcome is not None and folder is not None:
                write_markdown(folder, results.data)
            tell(key, outcome)

        results.run(tables, jobs, options.batch_size, progress)
    for suite in tables:
        _show(suite.name, results.data.suites[suite.name])
    changed = _beside_first(options, at, results, own)
    if folder is not None:
        write_evaluation(folder, results.data, [search_section(each) for each in changed])
        if options.card:
            update_card(Path(model))
        console.say(f"Wrote {folder}; open {folder / PAGE}.")
    # In a folder of earlier calls other tasks may be missing too.
    missing = [key for key in jobs if key in results.data.missing]
    return WithoutScore(missing, results.undefined)


def _tell_note(note: str, options: argparse.Namespace) -> None:
    if options.card:
        raise UserError(
            "--card shows what the model's own modules reach, and it has none; leave out --card."
        )
    console.say(note)


def _beside_first(
    options: argparse.Namespace, at: int, results: Results, own: Sequence[OwnSetJob]
) -> list[SearchedTwice]:
    """Say how a model does beside the first, and return what they found where both searched."""
    base, model = options.models[0], options.models[at]
    both = [job for job in own if {base, model} <= job.statistics.keys()]
    if at == 0 or not both:
        return []
    found = _verdicts(both, base, model)
    told = [verdict.as_record() for verdict in found]
    results.data.beside = Beside(model=Path(base).name, verdicts=told)
    results.write()
    for verdict in found:
        console.verdict(verdict.sentence, verdict.word)
    changed = _searches(both, base, model)
    for each in changed:
        console.show(changed_results(each))
        console.say(f"{each.sentence}.")
    return changed


def _searches(jobs: Sequence[OwnSetJob], base: str, model: str) -> list[SearchedTwice]:
    """Return the searches that both models were measured on."""
    found = []
    for job in jobs:
        if isinstance(job, SearchJob):
            before, after = (job.rankings[name][""] for name in (base, model))
            found.append(SearchedTwice(job.own.name, job.own.corpus, before, after))
    return found


def _show(name: str, scores: SuiteScores) -> None:
    console.show(suite_table(name, scores, most=FEW))
    if scores.search:
        console.show(search_table(scores))


def _verdicts(jobs: Sequence[OwnSetJob], base: str, model: str) -> list[Verdict]:
    """Compare a model with the base on sets and their mean, then on what else the sets have."""
    sets: dict[str, tuple[OwnSet, Statistic, Statistic]] = {}
    others: dict[str, tuple[OwnSet, Statistic, Statistic]] = {}
    for job in jobs:
        compared = job.compared(base, model)
        sets[job.own.name] = compared.pop(job.own.name)
        others |= compared
    found = compare(sets)
    for name, measured in others.items():
        found += compare({name: measured})
    return found


@contextmanager
def _displayed(keys: Sequence[str]) -> Iterator[Callable[[str, Any], None]]:
    """Say which of some tasks runs, on a terminal with the time that it has taken so far, and how
    each ended.
    """
    is_terminal = console.err.is_interactive
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console.err, transient=True, disable=not is_terminal) as shown:

        def told(key: str, outcome: Any) -> None:
            for task in shown.task_ids:
                shown.remove_task(task)
            place = f"[{keys.index(key) + 1}/{len(keys)}] {key}"
            if outcome is None:
                shown.add_task(place, total=None)  # No total: the bar pulses.
            if outcome is not None or not is_terminal:
                console.err.print(f"{place}: {_ended(outcome)}")

        yield told


def _ended(outcome: Any) -> str:
    if isinstance(outcome, str):
        return outcome
    return f"done in {outcome.seconds:.0f} s" if outcome else "begun"
