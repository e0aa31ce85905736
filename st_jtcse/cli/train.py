"""st-train: run a recipe."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from st_jtcse import bundled
from st_jtcse.cli import console
from st_jtcse.cli.exit_status import command
from st_jtcse.errors import UserError
from st_jtcse.recipe import extends
from st_jtcse.reports import run_tables
from st_jtcse.wording import unknown

if TYPE_CHECKING:
    from st_jtcse.recipe.load import LoadedRecipe
    from st_jtcse.recipe.schema import PushSpec
    from st_jtcse.training.sweep import Run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-train",
        description="Train sentence embeddings from a recipe: a YAML file, or the name of a bundled one.",
        epilog="Examples: st-train quickstart; st-train jtcse-mini --set data.train=my.txt --output-dir runs/mine",
    )
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="path, or name of a bundled recipe")
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a value, e.g. seed=1 or stages.joint.args.learning_rate=2e-5; repeatable",
    )
    parser.add_argument("--output-dir", metavar="DIR", help="folder of the run, instead of the recipe's")
    parser.add_argument(
        "--stage", dest="stages", action="append", default=[], metavar="NAME", help="run this stage only; repeatable"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in the output folder")
    parser.add_argument("--dry-run", action="store_true", help="check everything, print the plan, write nothing")
    parser.add_argument(
        "--push",
        action="store_true",
        help="then push as the recipe's 'push' says, or else the last stage's model, private, under the recipe's name",
    )
    parser.add_argument("--list", action="store_true", help="list the bundled recipes")
    parser.add_argument("--copy", nargs=2, metavar=("NAME", "FILE"), help="copy a bundled recipe to a file to edit it")
    return parser


def _run(options: argparse.Namespace) -> None:
    if options.list:
        console.show_recipes({name: extends.load(path).data for name, path in bundled.recipes().items()})
        return
    if options.copy:
        _copy(*options.copy)
        return
    if options.recipe is None:
        raise UserError("Give a recipe: a YAML file, or a name that st-train --list shows.")

    # After the cheap answers: these imports take seconds.
    from accelerate import PartialState

    from st_jtcse import processes
    from st_jtcse.recipe.load import load_recipe
    from st_jtcse.training import plan, publish, runner, sweep

    overrides = list(options.overrides)
    if options.output_dir is not None:
        overrides.append(f"output_dir={json.dumps(options.output_dir)}")  # Quoted: a folder may be called 2024.
    loaded = load_recipe(options.recipe, overrides)
    names = runner.choose_stages(loaded.recipe, options.stages)
    runs = sweep.plan_runs(loaded, options.recipe, overrides)
    if options.dry_run and runs:
        _show_plan(plan.plan(runs[0].loaded, names), [run.folder for run in runs])
        return
    if options.dry_run:
        _show_plan(plan.plan(loaded, names), plan.expected_files(loaded, names))
        return
    # Every process must know which one writes, before the first of them does.
    PartialState(cpu=bool(loaded.recipe.args.get("use_cpu")))
    # Before the training, which may take days: without a token there would be no push after it.
    destination = publish.push_plan(loaded.recipe, options.push, names)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if runs:
        sweep.run_all(loaded, runs, names, resume=options.resume)
        if processes.rank() == 0:
            _report(loaded, runs)
        return
    results = runner.run(loaded, names, resume=options.resume)
    if processes.rank() == 0:
        console.show(run_tables.results_table(results))
        if destination is not None:
            _push(loaded, destination)


def _push(loaded: LoadedRecipe, destination: PushSpec) -> None:
    from st_jtcse.training.publish import push_models

    for pushed in push_models(loaded.recipe, destination):
        console.say(f"Pushed to {pushed.url}")


def _show_plan(stages: Sequence[Any], files: Sequence[Path]) -> None:
    console.show(run_tables.plan_table(stages))
    console.say("\n  ".join(["Files:", *map(str, files)]))


def _report(loaded: LoadedRecipe, runs: Sequence[Run]) -> None:
    """Leave sweep.json and, with matplotlib, a picture; print the table."""
    from st_jtcse.atomic import to_json, write_atomically
    from st_jtcse.reports import sweep_report
    from st_jtcse.reports.drawing import save
    from st_jtcse.training.run_folder import RunFolder
    from st_jtcse.training.sweep import changed_stages

    folder = Path(loaded.recipe.output_dir)
    told_runs = []
    for run in runs:
        records = {stage.name: RunFolder(run.folder).record(stage.name) for stage in run.loaded.recipe.stages}
        told_runs.append(sweep_report.SweepRun(run.point, {name: found for name, found in records.items() if found}))
    rows = sweep_report.summarize(told_runs, changed_stages(runs))
    told = {
        "recipe": loaded.recipe.name,
        "runs": [
            {"setting": run.values, "seed": run.seed, "folder": str(run.folder.relative_to(folder))} for run in runs
        ],
        "stages": [dataclasses.asdict(row) for row in rows],
    }
    write_atomically(folder / "sweep.json", to_json(told))
    console.show(sweep_report.sweep_table(rows, loaded.recipe.name))
    try:
        save(sweep_report.draw_sweep(rows), folder, "sweep")
    except UserError as error:  # The numbers are there; the picture can be had later.
        console.tell_faults(error)


def _copy(name: str, target: str) -> None:
    known = bundled.recipes()
    if name not in known:
        raise UserError(f"--copy: {unknown('the name of a bundled recipe', name, known)}")
    destination = Path(target)
    if destination.exists():
        raise UserError(f"--copy: {destination} exists already; choose another file.")
    shutil.copyfile(known[name], destination)


main = command(_parser, _run, interrupted="the same command with --resume goes on from the last checkpoint")

if __name__ == "__main__":
    sys.exit(main())
