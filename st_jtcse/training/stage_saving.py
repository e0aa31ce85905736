"""A stage's end: its trained model, its start or a mixture of both is saved, read back, scored and
described.
"""

from __future__ import annotations

import copy
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from st_jtcse import processes
from st_jtcse.evaluation import gmac
from st_jtcse.recipe.blocks import DEV
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.as_shipped import beside_start
from st_jtcse.training.job import Job
from st_jtcse.training.limits import Limits, limits_of
from st_jtcse.training.model_kinds import ModelKind, kind_of
from st_jtcse.training.provenance import environment
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.stage_card import describe
from st_jtcse.training.stage_inputs import Inputs

logger = logging.getLogger(__name__)

SHARES = (1.0, 0.8, 0.6, 0.4, 0.2)


def save_stage(
    loaded: LoadedRecipe,
    job: Job,
    folder: RunFolder,
    found: dict[str, Any],
    make_start: Callable[[], Any],
) -> None:
    """Put a stage's result in place of its checkpoints, with its record and its card.

    `found` is what is known of the stage. The result is the trained model, or the start where that
    is better. The first process writes; the others read what it has saved, and encode a share of
    what it is scored on.
    """
    stage, inputs, is_first = job.stage, job.inputs, processes.rank() == 0
    kind = kind_of(stage.model)
    written = _written(job, folder, found, make_start) if is_first else None
    processes.wait_for_all()
    staging = processes.gathered(written)[0]
    # The saved model is what counts: it is read back before it is scored.
    saved = kind.load(staging, stage.model.trust_remote_code)
    processes.wait_for_all()
    scores = kind.shared_scores(saved, inputs.evaluators)
    beside = beside_start(
        loaded.recipe.stages_of_run, stage, inputs, saved, any(found["as_shipped"].values())
    )
    if not is_first:
        return
    found = {"environment": environment(), **found}
    found["parameters"] = sum(parameter.numel() for parameter in saved.parameters())
    found["gmac"] = round(gmac(saved), 4)
    found["spearman"] = scores
    for ability in job.abilities:
        ability.saved(job, found)
    found |= beside
    # What the card knows of the training is in the trained model; its form is the saved one's.
    saved.model_card_data = job.model.model_card_data
    describe(loaded, stage, saved, staging, found)
    folder.finish(stage.name, staging)


def _written(
    job: Job, folder: RunFolder, found: dict[str, Any], make_start: Callable[[], Any]
) -> Path:
    """Write a stage's result into a folder to be finished, and return that."""
    result = result_of(job.stage, job.model, make_start, job.inputs, found)
    staging = folder.staging(job.stage.name)
    kind_of(job.stage.model).save(result, staging)
    if result is job.model:
        for name, place in job.files.items():
            shutil.move(place, staging / name)
    return staging


def result_of(
    stage: StageSpec,
    model: Any,
    make_start: Callable[[], Any],
    inputs: Inputs,
    found: dict[str, Any],
) -> Any:
    """Return the model that a stage ends with, and complete what is found of the stage.

    The start competes as step 0 of a training that is evaluated on `dev`; `evaluate.retention` and
    `evaluate.kept_neighbours` bound what general sets may lose.
    """
    best, dev = found.get("best_dev"), found["spearman_start"].get(DEV)
    if best is not None and best < dev:
        told = (
            "%s: dev fell from %.2f to %.2f at best, so the stage keeps the model it started from"
        )
        logger.warning(told, stage.name, dev, best)
        found["best_step"] = 0
        return make_start()
    limits = limits_of(stage.evaluate, inputs.evaluators)
    if stage.loss is not None and limits.allowed:
        found |= keep_general(limits, model, make_start(), kind_of(stage.model), inputs, found)
    return model


def keep_general(
    limits: Limits,
    model: Any,
    start: Any,
    kind: ModelKind,
    inputs: Inputs,
    found: Mapping[str, Any],
) -> dict[str, Any]:
    r"""Mix a trained model's weights in place with its start's, until no general set has lost more
    than is allowed.

    Where the training was evaluated on `dev`, the mixture must not fall below the start there
    either.

    .. math:: \theta = (1 - s)\, \theta_{start} + s\, \theta_{trained}, \qquad
        s = 1, 0.8, 0.6, 0.4, 0.2, 0

    Args:
        limits: What is allowed, and of which sets.
        model: The trained model; it gets the mixed weights.
        start: The model before training, of the same architecture.
        kind: What both are.
        inputs: The stage's, which hold the sets.
        found: What the stage's record says, the start's scores among it.

    Returns:
        What the record says more: the largest share s of the trained weights that keeps within the
            bound. Where none
        does, the start is the stage's result.

    References:
        Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022, Eq. 1.
    """
    before, chooses = found["spearman_start"], found.get("best_dev") is not None
    every = replace(limits, allowed={**limits.allowed, **({DEV: 0.0} if chooses else {})})
    sets = {name: inputs.evaluators[name] for name in every.allowed}
    first, last = copy.deepcopy(start.state_dict()), copy.deepcopy(model.state_dict())
    for share in SHARES:
        model.load_state_dict(_mixed(first, last, share))
        after = kind.scores(model, sets)
        if not every.beyond(before, after):
            if share < 1:
                logger.warning(
                    "kept %.0f %% of the training, so that no general set %s",
                    100 * share,
                    limits.told,
                )
            return {"trained_share": share}
        told = ", ".join(f"{name} {before[name]:.2f} -> {after[name]:.2f}" for name in sets)
        logger.info("with %.0f %% of the training: %s", 100 * share, told)
    model.load_state_dict(first)
    told = "any share of the training %s%s, so the stage keeps the model it started from"
    logger.warning(told, limits.told, " or falls on dev" if chooses else "")
    return {"trained_share": 0.0, "best_step": 0}


def _mixed(
    first: Mapping[str, torch.Tensor], last: Mapping[str, torch.Tensor], share: float
) -> dict[str, Any]:
    mixed = dict(last)
    for name, value in last.items():
        # Buffers of whole numbers, such as positions, do not change in training.
        if value.is_floating_point() and share < 1:
            mixed[name] = torch.lerp(first[name], value, share)
    return mixed
