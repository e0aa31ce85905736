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
    recipe, first, chosen = loaded.recipe, processes.rank() == 0, loaded.choose(names)
    folder = RunFolder(Path(recipe.output_dir))
    with naming(recipe.output_dir), ExitStack() as held:
        stages = {stage.name: stage for stage in loaded.stages}
        # Nothing is touched in a folder that is not this run's, nor beside another process that is
        # at work in it.
        folder.check(recipe, resume)
        processes.wait_for_all()
        ours = resume and folder.holds(recipe)
        if first and ours:
            folder.adopt_older(stages)
            folder.check_places(stages)
            held.enter_context(folder.in_use())
            for name in stages:
                folder.recover(name)
        processes.wait_for_all()
        folder.check_earlier(chosen, stages)
        # All files are read and arguments checked before the first stage trains, and before
        # anything is written.
        inputs = load_inputs([stages[name] for name in chosen], loaded.cache_dir)
        for name in chosen:
            training_arguments(stages[name], recipe.seed, folder.stage(name))
        if ours:
            folder.check_resumable(
                chosen, stages, {name: own.hashes for name, own in inputs.items()}
            )
        rehearse(
            loaded,
            [name for name in chosen if not ours or folder.record(name) is None],
            inputs,
            rehearsed,
        )
        held.enter_context(folder.open(recipe, resume))
        if resume and rehearsed is None:  # A sweep tells it of all its runs.
            tell_if_nothing_to_resume(folder.path, [folder.path], list(stages))
        if first:
            held.enter_context(run_log(folder.path))
        held.enter_context(recalling())
        # Kept before a stage is trained: a run that is gone on with need not compute them again.
        shipped = ShippedScores(stages, keep=lambda: write_results(recipe, folder, shipped))
        shipped.take_up(folder.path / RESULTS)
        for name in chosen:
            if first and name in finished and folder.record(name) is None:
                folder.adopt(name, finished[name])
            processes.wait_for_all()
            is_finished = folder.record(name) is not None
            processes.wait_for_all()  # Until all have looked: one may finish it soon.
            if not is_finished:
                run_stage(loaded, stages[name], inputs[name], folder, shipped, callbacks)
            write_results(recipe, folder, shipped)
        return leave_report(recipe, folder, shipped, inputs)
