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
from st_jtcse.errors import UserError, naming
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import STAGE_PREFIX, Recipe, StageSpec
from st_jtcse.training.as_shipped import ShippedScores, begins_as
from st_jtcse.training.checkpoints import same_data
from st_jtcse.training.provenance import environment
from st_jtcse.training.rehearsal import rehearse
from st_jtcse.training.run_folder import RESULTS, RunFolder
from st_jtcse.training.stage import run_stage
from st_jtcse.training.stage_inputs import Inputs, load_inputs
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
    with naming(loaded.recipe.output_dir), ExitStack() as held:
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
    _check_earlier(chosen, stages, folder)
    # All files are read and arguments checked before the first stage trains, and before anything is written.
    inputs = load_inputs([stages[name] for name in chosen])
    for name in chosen:
        training_arguments(stages[name], recipe.seed, folder.stage(name))
    if ours:
        _check_resumable(chosen, stages, inputs, folder)
    rehearse(loaded, [name for name in chosen if not ours or folder.record(name) is None], inputs, rehearsed)
    held.enter_context(folder.open(recipe, resume))
    # Kept before a stage is trained: a run that is gone on with need not compute them again.
    shipped = ShippedScores(stages, keep=lambda: _write_results(recipe, folder, shipped))
    shipped.take_up(folder.path / RESULTS)
    for name in chosen:
        if first and name in finished and folder.record(name) is None:
            folder.adopt(name, finished[name])
        processes.wait_for_all()
        if folder.record(name) is None:
            logger.info("stage %s, from %s", name, begins_as(stages[name].model))
            run_stage(loaded, stages[name], inputs[name], folder, shipped)
        _write_results(recipe, folder, shipped)
    return _results(recipe, folder, shipped)


def _check_earlier(chosen: Sequence[str], stages: Mapping[str, StageSpec], folder: RunFolder) -> None:
    """Raise UserError where a stage to start from is not finished."""
    for name in chosen:
        for earlier in stages[name].earlier:
            if earlier not in chosen and folder.record(earlier) is None:
                raise UserError(
                    f"--stage: {name!r} starts from {STAGE_PREFIX}{earlier}, which is not finished in {folder.path}; "
                    f"add --stage {earlier}."
                )


def _check_resumable(
    chosen: Sequence[str], stages: Mapping[str, StageSpec], inputs: Mapping[str, Inputs], folder: RunFolder
) -> None:
    """Raise UserError where going on would not give what an uninterrupted run gives."""
    if processes.rank() == 0:
        for name in dict.fromkeys(name for last in chosen for name in (*stages[last].earlier, last)):
            folder.check_weights(name)
    for name in chosen:
        record = folder.record(name)
        without = [key for key in ("save_only_model", "ignore_data_skip") if stages[name].args.get(key)]
        if record is not None:
            same_data(folder.stage(name), record["data_sha256"], inputs[name].hashes)
        elif without:
            raise UserError(
                f"--resume: stage {name!r} sets args.{without[0]}, and cannot go on as if it had not been interrupted; "
                "start anew without it, in another folder with --output-dir."
            )


def _write_results(recipe: Recipe, folder: RunFolder, shipped: ShippedScores) -> None:
    if processes.rank() == 0:
        write_atomically(folder.path / RESULTS, to_json(_results(recipe, folder, shipped)))


def _results(recipe: Recipe, folder: RunFolder, shipped: ShippedScores) -> dict[str, Any]:
    records = [record for stage in recipe.stages if (record := folder.record(stage.name))]
    for record in records:
        shipped.take(record)
    return {
        "recipe": recipe.name,
        "seed": recipe.seed,
        "finished": len(records) == len(recipe.stages),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "environment": environment(),
        "as_shipped": shipped.scores,
        "data_sha256": shipped.data_sha256,
        "stages": records,
    }
