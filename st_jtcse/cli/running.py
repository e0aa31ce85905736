"""The work of `st-train`, once its recipe is loaded."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate import PartialState

from st_jtcse.cli import console
from st_jtcse.cli.run_display import displayed
from st_jtcse.hub.model_form import model_form
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.reports import run_tables
from st_jtcse.reports.run_report import PAGE
from st_jtcse.training import publish, runner, sweep
from st_jtcse.training.run_results import best_stage
from st_jtcse.training.sweep import Run


def train(options: argparse.Namespace, loaded: LoadedRecipe, runs: Sequence[Run], names: Sequence[str]) -> None:
    """Run stages of a recipe, or of each run of its sweep, show how far it is and what came of it, and push that."""
    # Every process must know which one writes, before the first of them does.
    speaks = PartialState(cpu=bool(loaded.recipe.args.get("use_cpu"))).is_main_process
    # Before the training, which may take days: without a token there would be no push after it.
    destination = publish.push_plan(loaded.recipe, options.push, names)
    with console.own_lines(speaks=speaks):
        if runs:
            with displayed(names, speaks=speaks) as callbacks:
                sweep.run_all(loaded, runs, names, resume=options.resume, callbacks=callbacks)
            if speaks:
                console.show(sweep.report(loaded, runs))
            return
        with displayed(names, speaks=speaks) as callbacks:
            results = runner.run(loaded, names, resume=options.resume, callbacks=callbacks)
        if speaks:
            _tell_end(Path(loaded.recipe.output_dir), results)
            for address in publish.push_models(loaded.recipe, destination) if destination else ():
                console.say(f"Pushed to {address}")


def _tell_end(folder: Path, results: Mapping[str, Any]) -> None:
    """Print the table, the best model's folder and how it is used."""
    console.show(run_tables.results_table(results))
    for told in results["verdicts"]:
        console.verdict(told["sentence"], told["verdict"])
    if best := best_stage(results):
        place = folder / best
        console.say(f"Best model: {place}")
        console.say(f"Use it: {model_form(place).usage(str(place))}")
        base = "embedded " if results["as_shipped"].get("embedded") else ""
        console.say(f"Next: st-eval {base}{shlex.quote(str(place))} --data FILE, with labelled text of your own")
    console.say(f"Curves and examples: {folder / PAGE}")
