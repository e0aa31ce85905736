"""One stage of a run: its model is assembled, trained, saved, read back, scored and described."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from transformers import TrainerCallback, set_seed

from st_jtcse import processes
from st_jtcse.data.arrow_files import DEFAULT_CACHE
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.as_shipped import ShippedScores, begins_as
from st_jtcse.training.job import Job
from st_jtcse.training.limits import recorded_limits
from st_jtcse.training.model_kinds import ModelKind, kind_of
from st_jtcse.training.models import Resolve, resolver, start_model
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.stage_inputs import Inputs
from st_jtcse.training.stage_lines import StageLines, tell_end
from st_jtcse.training.stage_saving import save_stage
from st_jtcse.training.stage_training import prepare, train


def seed_of(loaded: LoadedRecipe, stage: StageSpec) -> int:
    """Return a stage's own seed, in 0..2^31-1."""
    digest = hashlib.sha256(f"{loaded.recipe.seed}/{stage.name}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def start_of(stage: StageSpec, resolve: Resolve, seed: int) -> Any:
    """Assemble the model that a stage starts from, the same each time."""
    set_seed(seed)
    return start_model(stage, resolve, seed)


def _record_of_start(job: Job, kind: ModelKind, shipped: ShippedScores) -> dict[str, Any]:
    """Return what a stage's record says before it is trained."""
    stage, inputs = job.stage, job.inputs
    as_shipped = shipped.of(stage, inputs)
    shipped.keep()
    found: dict[str, Any] = {
        "seed": job.seed,
        "loss": stage.loss.model_dump() if stage.loss else None,
        "data_sha256": inputs.hashes,
        "begins_as": begins_as(stage.model),
        "as_shipped": as_shipped,
        "metrics": {name: kind.metric_of(own) for name, own in inputs.evaluators.items()},
        "spearman_start": kind.shared_scores(job.model, inputs.evaluators),
        "steps": 0,
        "seconds": 0.0,
    }
    return found | recorded_limits(stage.evaluate, inputs.evaluators)


def run_stage(
    loaded: LoadedRecipe,
    stage: StageSpec,
    inputs: Inputs,
    folder: RunFolder,
    shipped: ShippedScores,
    callbacks: Sequence[TrainerCallback] = (),
) -> None:
    """Train, save and evaluate one stage, from its last checkpoint; afterwards the folder holds it
    finished.

    `shipped` are the scores of the models that it starts from, `callbacks` watch the training. A
    stage without a loss is saved as it is. Raises UserError if a model does not load or fit, or the
    loss is not finite, and KeyboardInterrupt after an orderly stop with a checkpoint.
    """
    began, seed = time.perf_counter(), seed_of(loaded, stage)
    kind, start = kind_of(stage.model), partial(start_of, stage, resolver(folder), seed)
    job = Job(
        stage=stage,
        inputs=inputs,
        model=start(),
        folder=folder.stage(stage.name),
        cache_dir=loaded.cache_dir or DEFAULT_CACHE,
        seed=seed,
        resolve=resolver(folder),
    )
    job.begin()
    found = _record_of_start(job, kind, shipped)
    if stage.loss is not None:
        if processes.rank() == 0:
            folder.begin(stage.name)
        prepare(job)
        train(job, [StageLines(stage), *callbacks])
    job.finish()
    processes.wait_for_all()  # Until nobody reads the checkpoints any more.
    save_stage(loaded, job, folder, found | job.record, start)
    if processes.rank() == 0 and (record := folder.record(stage.name)):
        tell_end(record, time.perf_counter() - began)
    processes.wait_for_all()
