"""A whole run: stages in order, each handing its model to the next."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from st_jtcse import processes
from st_jtcse.atomic import to_json, write_atomically
from st_jtcse.errors import UserError
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import STAGE_PREFIX, Recipe
from st_jtcse.training.provenance import environment
from st_jtcse.training.rehearsal import rehearse
from st_jtcse.training.run_folder import RESULTS, RunFolder
from st_jtcse.training.stage import run_stage
from st_jtcse.training.stage_inputs import load_inputs
from st_jtcse.training.stage_training import training_arguments
from st_jtcse.wording import nearest

logger = logging.getLogger(__name__)


def choose_stages(recipe: Recipe, names: Sequence[str]) -> list[str]:
    """Return the stages to run, in the recipe's order; no names mean all, and a name that is no stage a UserError."""
    known = [stage.name for stage in recipe.stages]
    for name in names:
        if name not in known:
            near = nearest(name, known)
            hint = f" Did you mean {near!r}?" if near else ""
            raise UserError(f"--stage: {name!r} is no stage of the recipe ({', '.join(known)}).{hint}")
    return [name for name in known if not names or name in names]


def run(
    loaded: LoadedRecipe,
    names: Sequence[str] = (),
    *,
    resume: bool = False,
    finished: Mapping[str, Path] | None = None,
    rehearsed: set[str] | None = None,
) -> dict[str, Any]:
    """Run a recipe's stages, by default all, leave recipe.yaml, a folder a stage and results.json, and return the last.

    `resume` goes on with the run in the output folder; `finished` are stages, by name, that another run has finished
    and that would come out the same, `rehearsed` what :func:`~st_jtcse.training.rehearsal.rehearse_all` returned.
    Raises UserError, and KeyboardInterrupt with a checkpoint to resume from.
    """
    with ExitStack() as held:
        return _run(loaded, choose_stages(loaded.recipe, names), resume, finished or {}, rehearsed, held)


def _run(
    loaded: LoadedRecipe,
    chosen: Sequence[str],
    resume: bool,
    finished: Mapping[str, Path],
    rehearsed: set[str] | None,
    held: ExitStack,
) -> dict[str, Any]:
    recipe, first = loaded.recipe, processes.rank() == 0
    folder = RunFolder(Path(recipe.output_dir))
    stages = {stage.name: stage for stage in loaded.stages}
    # Nothing is touched in a folder that is not this run's, nor beside another process that is at work in it.
    ours = resume and folder.holds(recipe)
    if first and ours:
        held.enter_context(folder.in_use())
        for name in stages:
            folder.recover(name)
    processes.wait_for_all()
    for name in chosen:
        for earlier in stages[name].earlier:
            if earlier not in chosen and folder.record(earlier) is None:
                raise UserError(
                    f"--stage: {name!r} starts from {STAGE_PREFIX}{earlier}, which is not finished in {folder.path}; "
                    f"add --stage {earlier}."
                )
    # All files are read and arguments checked before the first stage trains, and before anything is written.
    inputs = load_inputs([stages[name] for name in chosen])
    for name in chosen:
        training_arguments(stages[name], recipe.seed, folder.stage(name))
    left = [name for name in chosen if not ours or folder.record(name) is None]
    rehearse(loaded, left, inputs, rehearsed)
    folder.open(recipe, resume)
    if first and not ours:
        held.enter_context(folder.in_use())
    for name in chosen:
        if first and name in finished and folder.record(name) is None:
            folder.adopt(name, finished[name])
        processes.wait_for_all()
        if folder.record(name) is None:
            logger.info("stage %s", name)
            run_stage(loaded, stages[name], inputs[name], folder)
        if first:
            write_atomically(folder.path / RESULTS, to_json(_results(recipe, folder)))
    return _results(recipe, folder)


def _results(recipe: Recipe, folder: RunFolder) -> dict[str, Any]:
    records = [record for stage in recipe.stages if (record := folder.record(stage.name))]
    return {
        "recipe": recipe.name,
        "seed": recipe.seed,
        "finished": len(records) == len(recipe.stages),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "environment": environment(),
        "stages": records,
    }
