"""st-eval: the papers' evaluations and sets of one's own, of one model or of several beside the
first.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from st_jtcse.cli import console
from st_jtcse.cli.arguments import (
    REPEATED,
    add_count,
    add_pooling,
    add_trust,
    called_columns,
    faults_of,
)
from st_jtcse.cli.exit_status import NO_DATA, command, outcome
from st_jtcse.corpus_folder import is_judged_corpus
from st_jtcse.errors import UserError
from st_jtcse.reports.table import Table

if TYPE_CHECKING:
    from st_jtcse.evaluation.measured_sets import OwnSetJob

_PATIENCE = timedelta(days=1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-eval",
        description="Evaluate models on the papers' tables, MTEB tasks and SentEval's sets, and on "
        "files of your own. With several models you learn whether each is better than, equal to or "
        "worse than the first.",
        epilog="Examples: st-eval runs/quickstart/joint --suite sts7 --output-dir results/joint; "
        "st-eval embedded runs/mine/student --data intents.jsonl --data pairs.csv",
    )
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="folder or Hub id of a model, or embedded"
    )
    _add_measured(parser)
    files = (
        "folder to write results and pictures to, new, empty or of this model's earlier results; "
        "several models get a folder each in it"
    )
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help=files)
    card = "keep the results in MODEL/evaluation and show them in the model's card"
    parser.add_argument("--card", action="store_true", help=card)
    add_pooling(parser, "how to pool the encoder, instead of by the model's own modules")
    parser.add_argument(
        "--revision", metavar="NAME", help="commit, tag or branch of a model on the Hub"
    )
    parser.add_argument(
        "--device", metavar="NAME", help="e.g. cpu or cuda:1 (default: the fastest available)"
    )
    add_count(parser, "--batch-size", 64, "texts per batch")
    add_trust(parser)
    parser.add_argument("--list", action="store_true", help="list the suites")
    return parser


def _add_measured(parser: argparse.ArgumentParser) -> None:
    """Add what the models are measured on."""
    parser.add_argument(
        "--suite",
        dest="suites",
        **REPEATED,
        metavar="NAME",
        help="a paper's table; --list shows them",
    )
    task = "an MTEB task, or senteval/NAME; subsets and splits separated by commas"
    parser.add_argument(
        "--task", dest="tasks", **REPEATED, metavar="NAME[:SUBSET][@SPLIT]", help=task
    )
    data = (
        "a labelled file to measure on, or a folder with a corpus and its queries; or one folder "
        "with local copies of data sets, used before the Hub's"
    )
    parser.add_argument("--data", type=Path, **REPEATED, metavar="PATH", help=data)
    corpus = "documents, a folder or a file of them, that the queries of the --data file search"
    parser.add_argument("--corpus", type=Path, metavar="PATH", help=corpus)
    columns = "what your files call the columns of a set, e.g. query=question,relevant=answer"
    parser.add_argument(
        "--columns", type=called_columns, default=(), metavar="NAME=YOURS,...", help=columns
    )


def _run(options: argparse.Namespace) -> int:
    if options.list:
        from st_jtcse.evaluation.protocols import suites

        rows = [
            [
                name,
                str(suite.source),
                str(len(suite.rows)) if suite.rows else f"unpublished; use {suite.instead}",
            ]
            for name, suite in suites().items()
        ]
        console.show(Table(["suite", "source", "tasks"], rows, "suites", names=3))
        return 0
    if os.environ.get("WORLD_SIZE", "1") == "1":
        _check(options)
        return _evaluate(options)
    return _evaluate_together(options)


def _evaluate_together(options: argparse.Namespace) -> int:
    """Evaluate in the first of several processes, which share the encoding."""
    # Stacks that torch prints where another process is gone; read when torch is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from st_jtcse import processes

    processes.check_environment()
    status = 0
    with processes.together(lambda error: outcome(error, _left(options))):
        # The others wait while the first reads data and computes scores.
        processes.join(use_cpu=options.device == "cpu", patience=_PATIENCE)
        _check(options)
        if ":" in (options.device or ""):
            raise UserError(
                f"--device: expected a kind of device, as each process takes one of its own, found "
                f"{options.device!r}; leave out the number."
            )
        if processes.rank() == 0:
            status = _evaluate(options)
        else:
            _serve(options)
    return status


@console.quiet_libraries()
@console.no_bars_of_datasets()
def _serve(options: argparse.Namespace) -> None:
    from st_jtcse.cli.evaluating import serve

    serve(options)


def _check(options: argparse.Namespace) -> None:
    """Refuse options that do not go together, and complete them."""
    if not options.models:
        raise UserError("Give a model: a folder, a Hub id, or embedded.")
    folders = [path for path in options.data if path.is_dir() and not is_judged_corpus(path)]
    options.files = [path for path in options.data if path not in folders]
    if len(folders) > 1:
        raise UserError(
            f"--data: expected at most one folder, found {len(folders)}; name the files in the "
            "others."
        )
    options.folder = folders[0] if folders else None
    if options.corpus is not None and len(options.files) != 1:
        raise UserError(
            f"--corpus: expected one --data file of queries beside it, found "
            f"{len(options.files)}. Give one."
        )
    if not options.suites and not options.tasks and not options.files:
        raise UserError(
            "Nothing to evaluate: give --suite, --task or --data FILE; st-eval --list shows the "
            "suites."
        )
    options.output_dirs = [options.output_dir]
    if len(options.models) > 1:
        options.output_dirs = _folders(options.models, options.output_dir)
    if options.card:
        _check_card(options)


def _check_card(options: argparse.Namespace) -> None:
    if len(options.models) > 1:
        raise UserError("--card is for one model; evaluate it alone.")
    if options.output_dir is not None:
        raise UserError("--card keeps the results in the model's folder; leave out --output-dir.")
    if options.pooling is not None:
        raise UserError("--card shows the scores of the model as it is; leave out --pooling.")
    if not Path(options.models[0]).is_dir():
        raise UserError(
            f"--card: {options.models[0]} is not a folder, so it has no card; download the model "
            "first."
        )

    from st_jtcse.hub.card_results import EVALUATION
    from st_jtcse.hub.cards import updated_card

    # What cannot be read is told before the work, not after it.
    updated_card(Path(options.models[0]))
    options.output_dirs = [Path(options.models[0], EVALUATION)]


def _folders(models: Sequence[str], parent: Path | None) -> list[Path | None]:
    """Return a folder of results for each of several models, of its name."""
    names = [Path(model).name for model in models]
    if again := next((model for model, name in zip(models, names) if names.count(name) > 1), None):
        raise UserError(
            f"Several models are called {Path(again).name!r}; rename the folder of one."
        )
    return [None if parent is None else parent / name for name in names]


@console.quiet_libraries()
@console.no_bars_of_datasets()
def _evaluate(options: argparse.Namespace) -> int:
    # After the cheap answers: these imports take seconds.
    from st_jtcse.cli.memory import importing

    with importing():
        from st_jtcse.cli.evaluating import check_device, evaluate_one
        from st_jtcse.evaluation.results import check_output
        from st_jtcse.evaluation.selection import named_suite, own_sets, select, suite_of_tasks

    if options.device is not None:
        check_device(options.device)

    with faults_of("--suite"):
        tables = [named_suite(name) for name in dict.fromkeys(options.suites)]
    with faults_of("--task"):
        tables += [suite_of_tasks(options.tasks)] if options.tasks else []
    jobs = select(tables, options.folder)
    own: dict[str, OwnSetJob] = {}
    if options.files:
        with faults_of("--data"):
            table, own = own_sets(options.files, options.corpus, options.columns)
        tables.append(table)
    with faults_of("--card" if options.card else "--output-dir"):
        for folder in filter(None, options.output_dirs):
            check_output(folder, [table.name for table in tables])
    evaluated = [
        evaluate_one(options, at, tables, {**jobs, **own}, list(own.values()))
        for at in range(len(options.models))
    ]
    missing = list(dict.fromkeys(key for found in evaluated for key in found.keys))
    if missing:
        console.err.print(
            f"{len(missing)} of {len(jobs) + len(own)} tasks have no result: {', '.join(missing)}."
        )
    if faults := [fault for found in evaluated for fault in found.faults]:
        raise UserError(*faults)
    return NO_DATA if missing else 0


def _left(options: argparse.Namespace) -> str:
    """Say what an interruption leaves."""
    if options.output_dir:
        return KEPT
    return "nothing was kept"


KEPT = "to go on after the finished tasks, repeat the command"
main = command(_parser, _run, interrupted=_left)

if __name__ == "__main__":
    sys.exit(main())
