"""The work of `st-train` once its recipe is loaded: runs, a line that shows on a terminal how far
they are, pushes.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_jtcse import processes
from st_jtcse.cli import console
from st_jtcse.data.arrow_files import DEFAULT_CACHE
from st_jtcse.errors import UserError
from st_jtcse.evaluation.kept_neighbours import KEPT
from st_jtcse.hub.card_results import TRAINING_RECORD
from st_jtcse.hub.model_form import model_form
from st_jtcse.hub.upload import check_repo, check_token, push
from st_jtcse.recipe.ability import abilities
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import STAGE_PREFIX, PushSpec, Recipe
from st_jtcse.records import RunResults
from st_jtcse.reports.run_report import PAGE, results_table
from st_jtcse.training import runner, sweep
from st_jtcse.training.agreement import check_agreement
from st_jtcse.training.limits import kept_lines
from st_jtcse.training.run_results import best_stage
from st_jtcse.training.stage_lines import dev_of
from st_jtcse.training.sweep import Run

_NARROW = Column(no_wrap=True, overflow="ellipsis")


def train(
    options: argparse.Namespace, loaded: LoadedRecipe, runs: Sequence[Run], names: Sequence[str]
) -> None:
    """Run stages of a recipe, or of each run of its sweep, show how far it is and what came of it,
    and push that.
    """
    meet(loaded)
    speaks = processes.rank() == 0
    # Before the training, which may take days: without a token there would be no push after it.
    destination = _push_plan(loaded.recipe, options.push, names)
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
            _tell_end(loaded, results)
            for address in _pushed(loaded.recipe, destination) if destination else ():
                console.say(f"Pushed to {address}")


def meet(loaded: LoadedRecipe) -> None:
    """Find the other processes of the run: all must know which one writes, before it does."""
    args = loaded.recipe.args
    limit = timedelta(seconds=args["ddp_timeout"]) if "ddp_timeout" in args else None
    processes.join(use_cpu=bool(args.get("use_cpu")), patience=limit)
    check_agreement(loaded, loaded.cache_dir or DEFAULT_CACHE)


def _push_plan(recipe: Recipe, asked: bool, chosen: Sequence[str]) -> PushSpec | None:
    """Return where a run's models go: what the recipe says, else, if asked, the last stage's under
    the recipe's name.

    None if nothing is to be pushed. Raises UserError for a name that cannot be right, no token, no
    chosen or finished stage to push, and several models of a stage.
    """
    if recipe.push is None and not asked:
        return None
    plan = recipe.push or PushSpec(
        repos={recipe.stages_of_run[-1].name: recipe.name}, private=True, collection=None
    )
    if recipe.sweep or recipe.seeds:
        raise UserError(
            f"{recipe.name} trains several models per stage, so none is the one to push; push one "
            "with st-push."
        )
    if not any(
        stage in chosen or Path(recipe.output_dir, stage, TRAINING_RECORD).is_file()
        for stage in plan.repos
    ):
        raise UserError(
            f"The stages to push ({', '.join(plan.repos)}) are neither chosen nor finished; choose "
            "one with --stage."
        )
    for repo in plan.repos.values():
        check_repo(repo)
    check_token()
    return plan


def _pushed(recipe: Recipe, plan: PushSpec) -> list[str]:
    """Push the finished stages that the plan names, and return the models' addresses; raises as
    `push` does.
    """
    return [
        push(Path(recipe.output_dir, stage), repo, private=plan.private, collection=plan.collection)
        for stage, repo in plan.repos.items()
        # A run of some of the stages leaves the others for another time.
        if Path(recipe.output_dir, stage, TRAINING_RECORD).is_file()
    ]


def _tell_end(loaded: LoadedRecipe, results: RunResults) -> None:
    """Print the table, the best model's folder and how it is used."""
    folder = Path(loaded.recipe.output_dir)
    # Of kept neighbours each set has a line of its own; a terminal has few columns.
    console.show(results_table(results, without=KEPT))
    for told in results.verdicts:
        console.verdict(told.sentence, told.verdict)
    _tell_ending(results)
    if best := best_stage(results):
        place = folder / best
        console.say(f"Best model: {place}")
        console.say(f"Use it: {model_form(place).usage(str(place))}")
        named = {name for stage in loaded.stages for name in stage.model.models.values()}
        starts = [name for name in named if not name.startswith(STAGE_PREFIX)]
        beside = starts if len(starts) == 1 and any(results.as_shipped.values()) else []
        models = shlex.join([*beside, str(place)])
        console.say(f"Next: st-eval {models} --data FILE, with labelled text of your own")
    console.say(f"Curves and examples: {folder / PAGE}")


def _tell_ending(results: RunResults) -> None:
    """Say what the last stage keeps, of which there is something to say, and what the abilities say
    of it.
    """
    for record in reversed(results.stages):
        told = kept_lines(record)
        told += [line for ability in abilities() for line in ability.ending(record)]
        for line, verdict in told:
            console.verdict(line, verdict)
        if told:
            return


class _Display(TrainerCallback):
    """Moves the bar of the stage at work; between stages it only shows that the run lives."""

    def __init__(self, progress: Progress, stages: Sequence[str]) -> None:
        self._progress = progress
        self._stages = stages
        self._told: dict[str, float] = {}
        # No total: the bar pulses.
        self._task = progress.add_task(f"before {stages[0]}", total=None, told="")

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Take up a stage, at the step that it goes on from."""
        name = Path(str(args.output_dir)).name
        self._told = {}
        told = f"{self._stages.index(name) + 1}/{len(self._stages)} {name}"
        self._turn_to(told, state.max_steps, state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Count a step."""
        self._progress.update(self._task, completed=state.global_step)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Show the loss."""
        self._tell(loss=(kw.get("logs") or {}).get("loss"))

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Show the best of dev so far."""
        found = dev_of(args, kw.get("metrics") or {})
        self._tell(dev=None if found is None else max(found, self._told.get("dev", found)))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        """Say that the stage is saved and the next prepared."""
        self._turn_to(f"after {Path(str(args.output_dir)).name}")

    def _turn_to(self, told: str, total: int | None = None, completed: int = 0) -> None:
        before = self._task
        self._task = self._progress.add_task(told, total=total, completed=completed, told="")
        self._progress.remove_task(before)

    def _tell(self, **found: float | None) -> None:
        self._told |= {name: value for name, value in found.items() if value is not None}
        told = " ".join(f"{name} {value:.4g}" for name, value in self._told.items())
        self._progress.update(self._task, told=told)


@contextmanager
def displayed(stages: Sequence[str], *, speaks: bool) -> Iterator[list[TrainerCallback]]:
    """Show how far the training of some stages is, by the callbacks given, where stderr is a
    terminal.
    """
    columns = (
        TextColumn("{task.description}", markup=False, table_column=_NARROW),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[told]}", markup=False, table_column=_NARROW),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
    )
    quiet = not (speaks and console.err.is_interactive)
    with Progress(
        *columns, console=console.err, transient=True, expand=True, disable=quiet
    ) as progress:
        yield [_Display(progress, stages)]
