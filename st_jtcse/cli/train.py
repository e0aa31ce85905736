"""st-train: run a recipe."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from st_jtcse.cli import console
from st_jtcse.cli.arguments import REPEATED, faults_of, recipes_complete, share
from st_jtcse.cli.exit_status import command, outcome
from st_jtcse.cli.simulated_size import scale
from st_jtcse.errors import UserError
from st_jtcse.recipe import first_recipes
from st_jtcse.wording import absent

if TYPE_CHECKING:
    from st_jtcse.recipe.load import LoadedRecipe
    from st_jtcse.training.sweep import Run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-train",
        description="Train sentence embeddings from a recipe: a YAML file, or the name of a "
        "bundled one.",
        epilog="Examples: st-train quickstart; st-train jtcse-mini --set data.train=my.txt "
        "--output-dir runs/mine; st-train init, which writes a recipe for what you have; "
        "st-train texts docs/ -o passages.jsonl, which cuts documents into passages",
    )
    recipe = parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="path, or name of a bundled recipe"
    )
    recipes_complete(recipe)
    change = "change a value, e.g. seed=1 or stages.joint.args.learning_rate=2e-5; repeatable"
    parser.add_argument("--set", dest="overrides", **REPEATED, metavar="KEY=VALUE", help=change)
    parser.add_argument(
        "--output-dir", metavar="DIR", help="folder of the run, instead of the recipe's"
    )
    parser.add_argument(
        "--stage", dest="stages", **REPEATED, metavar="NAME", help="run this stage only; repeatable"
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue the run in the output folder"
    )
    _add_plans(parser)
    where = (
        "afterwards push the models that the recipe's 'push' names; default: the last one, to a "
        "private repository"
    )
    parser.add_argument("--push", action="store_true", help=where)
    listed = (
        "list the bundled recipes by what you need for them; with WORD, only those that mention it"
    )
    parser.add_argument("--list", nargs="?", const="", metavar="WORD", help=listed)
    whole = "print a whole recipe, with what it extends and every default"
    recipes_complete(parser.add_argument("--show", metavar="NAME", help=whole))
    copied = "copy a bundled recipe and its data, for you to edit"
    recipes_complete(parser.add_argument("--copy", nargs=2, metavar=("NAME", "FILE"), help=copied))
    return parser


def _add_plans(parser: argparse.ArgumentParser) -> None:
    """Add what is done in place of a run, or ahead of it."""
    rehearsed = "check everything in a short rehearsal, print the plan, write nothing"
    parser.add_argument("--dry-run", action="store_true", help=rehearsed)
    sized = (
        "with --dry-run, plan the run for another size too: texts=N, and as many as you like of "
        "nodes=M, devices=G of a node, and in place of rates measured here train=R, encode=R, "
        "compare=R, translate=R rows, texts or pairs a second and device, bandwidth=B bytes a "
        "second; train.STAGE=R for one stage"
    )
    parser.add_argument("--simulate", type=scale, metavar="KEY=NUMBER,...", help=sized)
    ahead = (
        "compute share I of N of the vectors and round trips that the run needs, into the recipe's "
        "cache_dir, and stop; in any order, I from 1"
    )
    parser.add_argument("--prepare", type=share, metavar="I/N", help=ahead)


def _run(options: argparse.Namespace) -> None:
    if options.list is not None:
        _list(options.list)
        return
    if options.copy:
        name, file = options.copy
        with faults_of("--copy"):
            data = first_recipes.copy(name, Path(file))
        console.say(
            "\n  ".join(
                [f"Wrote {file}{', and the data that it reads:' if data else '.'}", *map(str, data)]
            )
        )
        console.say(f"Edit it, then check it: st-train {shlex.quote(file)} --dry-run")
        return
    if options.recipe is None and options.show is None:
        raise UserError("Name a recipe: a YAML file, or one of those that st-train --list shows.")

    _check_prepare(options)
    if options.simulate is not None and not options.dry_run:
        raise UserError("--simulate plans a run and trains nothing; add --dry-run.")
    # Bars that libraries cannot be asked to leave out; read when tqdm is imported.
    os.environ.setdefault("TQDM_DISABLE", "1")
    # Nor the stacks that torch prints where another process is gone; read when torch is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from st_jtcse.cli.memory import importing, keep_memory

    keep_memory()
    # Processes of one run must have met before one of them tells a fault.
    loaded = _read(options) if os.environ.get("WORLD_SIZE", "1") == "1" else None
    # After the cheap answers: these imports take seconds.
    with importing():
        from st_jtcse import processes

        processes.check_environment()
        import st_jtcse.cli.running
        import st_jtcse.training.plan  # noqa: F401
    left = _left(options)
    with processes.together(lambda error: outcome(error, left)):
        _run_recipe(options, loaded or _read(options))


def _check_prepare(options: argparse.Namespace) -> None:
    beside = {"--resume": options.resume, "--dry-run": options.dry_run, "--push": options.push}
    found = [option for option, is_given in beside.items() if is_given]
    if options.prepare is not None and found:
        raise UserError(
            f"--prepare computes a share and trains nothing, found {found[0]} beside it; leave one "
            "out."
        )


def _list(word: str) -> None:
    """Show the recipes that a word leads to; where there is none, what to begin with."""
    found = first_recipes.by_need(word)
    if found:
        console.show_recipes(found)
        return
    from st_jtcse.recipe.beginnings import first_steps
    from st_jtcse.reports.table import Table

    console.show(Table(["you have", "begin with"], first_steps(), "where to begin", names=2))
    raise UserError(f"--list: no bundled recipe mentions {word!r}; st-train --list shows all.")


def _read(options: argparse.Namespace) -> LoadedRecipe:
    """Read the recipe, and tell what is wrong with it and with the columns of its tables; hardly
    ever is a library imported for that.
    """
    from st_jtcse.recipe.load import check_recipe, load_recipe, missing_paths, read_recipe

    if options.show is not None:
        return load_recipe(options.show, options.overrides)
    loaded = read_recipe(options.recipe, _overrides(options))
    chosen = loaded.choose(options.stages)
    missing = missing_paths([stage for stage in loaded.stages if stage.name in chosen])
    if paths := dict.fromkeys(missing):
        raise UserError(*map(absent, paths))
    if options.prepare is not None and loaded.cache_dir is None:
        raise UserError(
            "--prepare: expected the recipe to name a 'cache_dir', which all shares and the run "
            "see, found none; add --set cache_dir=FOLDER."
        )
    check_recipe(loaded)
    _check_columns(loaded, chosen)
    return loaded


def _check_columns(loaded: LoadedRecipe, chosen: list[str]) -> None:
    from st_jtcse.recipe.sources import check_columns

    data, is_sweep = loaded.recipe.data, loaded.recipe.sweep is not None
    # The runs of a sweep may name other data, and vectors are no rows.
    if not is_sweep and (data is None or data.vectors is None):
        check_columns(stage for stage in loaded.stages if stage.name in chosen)


def _overrides(options: argparse.Namespace) -> list[str]:
    if options.output_dir is None:
        return options.overrides
    # Quoted: a folder may be called 2024.
    return [*options.overrides, f"output_dir={json.dumps(options.output_dir)}"]


def _run_recipe(options: argparse.Namespace, loaded: LoadedRecipe) -> None:
    from st_jtcse.cli import running
    from st_jtcse.recipe.load import resolved_yaml
    from st_jtcse.training import sweep

    if options.show is not None:
        console.say(resolved_yaml(loaded.recipe).rstrip())
        return
    names = loaded.choose(options.stages)
    has_vectors = loaded.recipe.data is not None and loaded.recipe.data.vectors is not None
    if has_vectors and options.prepare is None:
        from st_jtcse.cli import vectors

        if options.simulate is not None:
            raise UserError(
                "--simulate plans runs on texts, and data.vectors has none; leave one out."
            )
        vectors.run(loaded, dry_run=options.dry_run)
        return
    runs = sweep.plan_runs(loaded, options.recipe, _overrides(options))
    if options.prepare is not None:
        from st_jtcse.cli import preparing

        preparing.prepare(options.prepare, loaded, runs, () if has_vectors else names)
        return
    if options.dry_run:
        _dry_run(options, loaded, runs, names)
    else:
        running.train(options, loaded, runs, names)


def _dry_run(
    options: argparse.Namespace, loaded: LoadedRecipe, runs: Sequence[Run], names: list[str]
) -> None:
    """Check everything in a rehearsal, and show the plan."""
    from st_jtcse.training import plan, simulation
    from st_jtcse.training.run_folder import RunFolder, tell_if_nothing_to_resume

    place, folders = Path(loaded.recipe.output_dir), [run.folder for run in runs]
    with console.own_lines():
        if options.resume:
            stages = {stage.name: stage for stage in loaded.stages}
            tell_if_nothing_to_resume(place, folders or [place], list(stages))
            for folder in folders or [place]:
                RunFolder(folder).check_earlier(names, stages)
        planned = [run.loaded for run in runs] or [loaded]
        table, told = plan.plan(planned, names)
        simulated = options.simulate and simulation.simulate(planned[0], names, options.simulate)
    files = folders or RunFolder(place).expected(names)
    console.show(table)
    for heading, lines in (told | {"Files": list(map(str, files))}).items():
        console.say("\n  ".join([f"{heading}:", *lines]))
    if simulated:
        console.show(simulated.table())
        runs_told = [f"one run of {len(runs)}"] if len(runs) > 1 else []
        console.say("\n  ".join(["Size:", *runs_told, *simulated.lines()]))
    console.say("Everything fits together. To start the run, repeat the command without --dry-run.")


def _left(options: argparse.Namespace) -> str:
    """Say what an interruption leaves."""
    if options.dry_run:
        return "nothing was written"
    if options.prepare is not None:
        return "to go on after the last finished shard, repeat the command"
    return "to go on from the last checkpoint, repeat the command with --resume"


_train = command(_parser, _run, interrupted=_left)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a recipe, write a first one, or cut documents into passages."""
    given = sys.argv[1:] if argv is None else list(argv)
    if given[:1] == ["init"]:
        from st_jtcse.cli import init

        return init.main(given[1:])
    if given[:1] == ["texts"]:
        from st_jtcse.cli import texts

        return texts.main(given[1:])
    return _train(given)


if __name__ == "__main__":
    sys.exit(main())
