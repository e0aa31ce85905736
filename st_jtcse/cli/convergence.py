"""st-convergence: steps and seconds to a dev score, for the stages of several runs."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from st_jtcse.atomic import to_json, write_atomically
from st_jtcse.cli import console
from st_jtcse.cli.exit_status import command
from st_jtcse.errors import UserError

if TYPE_CHECKING:
    from st_jtcse.reports.convergence import Convergence

NAME = "convergence"


def _run(options: argparse.Namespace) -> None:
    # After the cheap answers: these imports take seconds.
    from st_jtcse.reports import convergence_plot, pictures
    from st_jtcse.reports.convergence import common_score, convergence, read_curves

    curves = read_curves(options.runs)
    score = common_score(curves) if options.score is None else options.score
    rows = convergence(curves, score)
    picture = convergence_plot.draw(curves, rows, score)
    try:
        options.output_dir.mkdir(parents=True, exist_ok=True)
        pictures.save(picture, options.output_dir, NAME)
        told = {"score": score, "stages": [dataclasses.asdict(row) for row in rows]}
        write_atomically(options.output_dir / f"{NAME}.json", to_json(told))
    except OSError as error:
        raise UserError(f"--output-dir: {options.output_dir} cannot be written: {error.strerror}.") from error
    console.out.print(_table(rows, score))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-convergence",
        description="Steps and seconds of training to a Spearman score on dev, for every stage of some runs of "
        "st-train. Stages of one name are one stage under several seeds, over the same data. Leaves convergence.json, "
        ".png and .svg.",
        epilog="Example: st-convergence runs/s1 runs/s2 runs/s3 --score 84 --output-dir report",
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="output folder of a run; its finished stages count"
    )
    parser.add_argument(
        "--score", type=float, metavar="S", help="Spearman x 100 on dev (default: the best that every run reaches)"
    )
    parser.add_argument("--output-dir", type=Path, required=True, metavar="DIR", help="folder of the report")
    return parser


def _table(rows: Sequence[Convergence], score: float) -> Table:
    sets = list(dict.fromkeys(name for row in rows for name in row.final))
    table = Table(title=f"to {score:.2f} on dev; Spearman x 100 of the saved models")
    table.add_column("stage")
    for column in ("reached", "steps", "seconds", *sets):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.stage,
            f"{row.reached} of {row.seeds}",
            console.spread(row.steps, 0),
            console.spread(row.seconds, 1),
            *(console.spread(row.final.get(name), 2) for name in sets),
        )
    return table


main = command(_parser, _run, interrupted="nothing was written")

if __name__ == "__main__":
    sys.exit(main())
