"""A whole run: stages in order, each handing its model to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from transformers import TrainerCallback

from st_jtcse import processes
from st_jtcse.errors import naming
from st_jtcse.evaluation.recalled_vectors import recalling
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.records import RunResults
from st_jtcse.training.as_shipped import ShippedScores
from st_jtcse.training.rehearsal import rehearse
from st_jtcse.training.run_folder import (
    RESULTS,
    RunFolder,
    run_log,
    tell_if_nothing_to_resume,
)
from st_jtcse.training.run_results import leave_report, write_results
from st_jtcse.training.stage import run_stage
from st_jtcse.training.stage_arguments import training_arguments
from st_jtcse.training.stage_inputs import load_inputs


def run(
    loaded: LoadedRecipe,
    names: Sequence[str] = (),
    *,
    resume: bool = False,
    finished: Mapping[str, Path] = {},
    rehearsed: set[str] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
) -> RunResults:
    """Run a recipe's stages, by default all, and return the results.

    It leaves recipe.yaml, a folder a stage, results.json and report.html.

    `resume` goes on with the run in the output folder; `finished` are stages, by name, that another
    run has finished and that would come out the same, `rehearsed` the keys of those that were
    rehearsed, of this or another recipe; `callbacks` watch the training of every stage. What is
    logged meanwhile goes into the folder's run.log too. Raises UserError, and KeyboardInterrupt
    with a checkpoint to resume from.
    """
    own = _Run(loaded, names, resume)
    with naming(own.recipe.output_dir), ExitStack() as held:
        own.look_at_folder(held)
        own.check(rehearsed)
        own.open(held, rehearsed)
        return own.train(finished, callbacks)


class _Run:
    """A run of a recipe's stages in its output folder."""

    def __init__(self, loaded: LoadedRecipe, names: Sequence[str], resume: bool) -> None:
        self.loaded, self.recipe, self.resume = loaded, loaded.recipe, resume
        self.chosen = loaded.choose(names)
        self.stages = {stage.name: stage for stage in loaded.stages}
        self.folder = RunFolder(Path(self.recipe.output_dir))
        self.is_first = processes.rank() == 0

    def look_at_folder(self, held: ExitStack) -> None:
        """Refuse a folder that is not this run's, or where another process is at work, before
        anything in it is touched.
        """
        self.folder.check(self.recipe, self.resume)
        processes.wait_for_all()
        self.goes_on = self.resume and self.folder.holds(self.recipe)
        if self.is_first and self.goes_on:
            self.folder.adopt_older(self.stages)
            self.folder.check_places(self.stages)
            held.enter_context(self.folder.in_use())
            for name in self.stages:
                self.folder.recover(name)
        processes.wait_for_all()
        self.folder.check_earlier(self.chosen, self.stages)

    def check(self, rehearsed: set[str] | None) -> None:
        """Read all files and check all arguments, before the first stage trains and before anything
        is written.
        """
        stages = [self.stages[name] for name in self.chosen]
        self.inputs = load_inputs(stages, self.loaded.cache_dir)
        for stage in stages:
            training_arguments(stage, self.recipe.seed, self.folder.stage(stage.name))
        left = self.chosen
        if self.goes_on:
            hashes = {name: own.hashes for name, own in self.inputs.items()}
            self.folder.check_resumable(self.chosen, self.stages, hashes)
            left = [name for name in left if self.folder.record(name) is None]
        rehearse(self.loaded, left, self.inputs, rehearsed)

    def open(self, held: ExitStack, rehearsed: set[str] | None) -> None:
        """Make the folder this run's, with its recipe and its log."""
        path = self.folder.path
        held.enter_context(self.folder.open(self.recipe, self.resume))
        if self.resume and rehearsed is None:  # A sweep tells it of all its runs.
            tell_if_nothing_to_resume(path, [path], list(self.stages))
        if self.is_first:
            held.enter_context(run_log(path))
        held.enter_context(recalling())

    def train(
        self, finished: Mapping[str, Path], callbacks: Sequence[TrainerCallback]
    ) -> RunResults:
        """Train the stages that are not finished, and leave the results."""
        recipe, folder = self.recipe, self.folder
        # Kept before a stage is trained: a run that is gone on with need not compute them again.
        shipped = ShippedScores(self.stages, keep=lambda: write_results(recipe, folder, shipped))
        shipped.take_up(folder.path / RESULTS)
        for name in self.chosen:
            if self.is_first and name in finished and folder.record(name) is None:
                folder.adopt(name, finished[name])
            processes.wait_for_all()
            is_finished = folder.record(name) is not None
            # Until all have looked: one may finish it soon.
            processes.wait_for_all()
            if not is_finished:
                stage = self.stages[name]
                run_stage(self.loaded, stage, self.inputs[name], folder, shipped, callbacks)
            write_results(recipe, folder, shipped)
        return leave_report(recipe, folder, shipped, self.inputs)
