"""st-eval: the papers' evaluations of one model."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from st_jtcse.cli import console
from st_jtcse.cli.arguments import REPEATED, add_count, add_pooling, add_trust, choices_by_flag, faults_of
from st_jtcse.cli.exit_status import command
from st_jtcse.errors import UserError
from st_jtcse.reports.table import Table

INCOMPLETE = 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-eval",
        description="Evaluate a model on the papers' tables: MTEB tasks and SentEval's sets.",
        epilog="Examples: st-eval runs/quickstart/joint --suite sts7 --output-dir results/joint; "
        "st-eval embedded --task STS22.v2:en --task senteval/TREC --data my-data",
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help="folder or Hub id of a model, or embedded")
    parser.add_argument("--suite", dest="suites", **REPEATED, metavar="NAME", help="a paper's table")
    task = "an MTEB task, or senteval/NAME; subsets and splits separated by commas"
    parser.add_argument("--task", dest="tasks", **REPEATED, metavar="NAME[:SUBSET][@SPLIT]", help=task)
    parser.add_argument("--data", type=Path, metavar="DIR", help="local data, used before the Hub's")
    files = "folder of results.json, results.md, pictures and index.html"
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help=files)
    card = "keep the results in MODEL/evaluation and show them in the model's card"
    parser.add_argument("--card", action="store_true", help=card)
    add_pooling(parser, "pool the encoder so instead of by the model's own modules")
    parser.add_argument("--revision", metavar="NAME", help="commit, tag or branch of a model on the Hub")
    parser.add_argument("--device", metavar="NAME", help="e.g. cpu or cuda:1 (default: the fastest there is)")
    add_count(parser, "--batch-size", 64, "texts at once")
    add_trust(parser)
    parser.add_argument("--list", action="store_true", help="list the suites")
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.list:
        from st_jtcse.evaluation.suites import suites

        rows = [
            [name, str(suite.source), str(len(suite.rows)) if suite.rows else f"unpublished; use {suite.instead}"]
            for name, suite in suites().items()
        ]
        console.show(Table(["suite", "source", "tasks"], rows, "suites", names=3))
        return 0
    _check(options)
    return _evaluate(options)


def _check(options: argparse.Namespace) -> None:
    """Refuse options that do not go together, and complete them."""
    if options.model is None:
        raise UserError("Give a model: a folder, a Hub id, or embedded.")
    if not options.suites and not options.tasks:
        raise UserError("Nothing to evaluate: give --suite or --task; st-eval --list shows the suites.")
    if options.data is not None and not options.data.is_dir():
        raise UserError(f"--data: {options.data} is no folder; check the path.")
    if not options.card:
        return
    if options.output_dir is not None:
        raise UserError("--card keeps the results in the model's folder; leave out --output-dir.")
    if options.pooling is not None:
        raise UserError("--card shows what the model's own modules reach; leave out --pooling.")
    if not Path(options.model).is_dir():
        raise UserError(f"--card: {options.model} is no folder, so it has no card here; download the model first.")

    from st_jtcse.hub.card_results import EVALUATION
    from st_jtcse.hub.cards import updated_card

    updated_card(Path(options.model))  # What cannot be read is told before the work, not after it.
    options.output_dir = Path(options.model, EVALUATION)


@console.quiet_libraries()
def _evaluate(options: argparse.Namespace) -> int:
    # After the cheap answers: these imports take seconds.
    from datasets import disable_progress_bars
    from huggingface_hub.utils import logging as hub_logging

    from st_jtcse.evaluation.jobs import load_model
    from st_jtcse.evaluation.results import Results
    from st_jtcse.evaluation.selection import named_suite, select, suite_of_tasks
    from st_jtcse.hub.cards import update_card
    from st_jtcse.reports.evaluation_report import suite_table, write_evaluation, write_markdown

    disable_progress_bars()
    # Of each retry; that data cannot be had is told once a task.
    hub_logging.set_verbosity_error()
    with faults_of("--suite"):
        tables = [named_suite(name) for name in dict.fromkeys(options.suites)]
    with faults_of("--task"):
        tables += [suite_of_tasks(options.tasks)] if options.tasks else []
    jobs = select(tables, options.data)
    with choices_by_flag():
        how = ("pooling", "revision", "trust_remote_code", "device")
        evaluated = load_model(options.model, **{name: getattr(options, name) for name in how})
    if options.card:  # Others will read it: where the model lies here is nothing to them.
        evaluated = replace(evaluated, name=Path(options.model).absolute().name)
    with faults_of("--output-dir"):
        results = Results(evaluated, options.output_dir)

    def progress(key: str, outcome: Any) -> None:
        if options.output_dir is not None:
            write_markdown(options.output_dir, results.data)
        console.err.print(f"{key}: {outcome if isinstance(outcome, str) else f'done in {outcome.seconds:.0f} s'}")

    results.run(tables, jobs, options.batch_size, progress)
    for suite in tables:
        console.show(suite_table(suite.name, results.data["suites"][suite.name]))
    if options.output_dir is not None:
        write_evaluation(options.output_dir, results.data)
        if options.card:
            update_card(Path(options.model))
        console.say(f"Wrote {options.output_dir}.")
    # In a folder of earlier calls other tasks may be missing too.
    missing = [key for key in jobs if key in results.data["missing"]]
    if missing:
        console.err.print(f"{len(missing)} of {len(jobs)} tasks have no result: {', '.join(missing)}.")
        return INCOMPLETE
    return 0


KEPT = "the same command goes on after the finished tasks"
main = command(_parser, _run, interrupted=lambda options: KEPT if options.output_dir else "nothing was kept")

if __name__ == "__main__":
    sys.exit(main())
