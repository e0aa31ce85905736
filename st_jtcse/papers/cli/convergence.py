"""st-convergence: steps and seconds to a dev score, for the stages of several runs."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from st_jtcse.cli import console
from st_jtcse.cli.arguments import faults_of
from st_jtcse.cli.exit_status import command
from st_jtcse.errors import UserError

_KIND = "a report of st-convergence"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-convergence",
        description="Steps and seconds of training to a Spearman score on dev, for every stage of "
        "some runs of st-train. Stages of one name are one stage under several seeds, over the "
        "same data. Leaves convergence.json, .png and .svg.",
        epilog="Example: st-convergence runs/s1 runs/s2 runs/s3 --score 84 --output-dir report",
    )
    runs = "output folder of a run; its finished stages are compared"
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=runs)
    score = "the score on dev to reach, x 100 (default: the best that every run reaches)"
    parser.add_argument("--score", type=float, metavar="S", help=score)
    parser.add_argument(
        "--output-dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder to write the report to, new, empty or of an earlier report",
    )
    return parser


def _run(options: argparse.Namespace) -> None:
    from st_jtcse.atomic import to_json
    from st_jtcse.ownership import check_folder, check_place, replace_ours, take_folder
    from st_jtcse.reports import seed_reports as report
    from st_jtcse.reports.dev_curves import read_curves
    from st_jtcse.reports.drawing import save

    names = (f"convergence.{kind}" for kind in ("json", "png", "svg"))
    with faults_of("--output-dir"):
        check_folder(options.output_dir, _KIND)
        check_place(*(options.output_dir / name for name in names))
    curves = read_curves(options.runs)
    score = report.common_score(curves) if options.score is None else options.score
    rows = report.convergence(curves, score)
    picture = report.draw_convergence(curves, rows, score)
    told = to_json({"score": score, "stages": [dataclasses.asdict(row) for row in rows]})
    try:
        take_folder(options.output_dir, _KIND)
        save(picture, options.output_dir, "convergence")
        replace_ours(options.output_dir / "convergence.json", told)
    except OSError as error:
        raise UserError(
            f"--output-dir: {options.output_dir} cannot be written: {error.strerror}."
        ) from error
    console.show(report.convergence_table(rows, score, curves))
    console.say(f"Wrote {options.output_dir}.")


main = command(_parser, _run, interrupted="nothing was written")

if __name__ == "__main__":
    sys.exit(main())
