"""A stage's end: its model is saved, read back, scored and described."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from st_jtcse.diagnostics import gmac
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.adapters import ADAPTER
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.provenance import environment
from st_jtcse.training.retention import result_of
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.run_verdict import beside_start
from st_jtcse.training.stage_card import describe
from st_jtcse.training.stage_inputs import Inputs


def save_stage(
    loaded: LoadedRecipe,
    stage: StageSpec,
    inputs: Inputs,
    folder: RunFolder,
    found: dict[str, Any],
    trained: Any,
    make_start: Callable[[], Any],
) -> None:
    """Put a stage's result in place of its checkpoints, with its record and its card.

    `found` is what is known of the stage. The result is the trained model, or the start where that is better.
    """
    kind = kind_of(stage.model)
    result = result_of(stage, trained, make_start, inputs, found)
    staging = folder.staging(stage.name)
    kind.save(result, staging)
    if result is trained and stage.loss is not None and stage.model.lora is not None:
        shutil.move(folder.stage(stage.name) / ADAPTER, staging / ADAPTER)
    # The saved model is what counts: it is read back before it is scored.
    saved = kind.load(staging, stage.model.trust_remote_code)
    found = {"environment": environment(), **found}
    found["parameters"] = sum(parameter.numel() for parameter in saved.parameters())
    found["gmac"] = round(gmac(saved), 4)
    found["spearman"] = kind.scores(saved, inputs.evaluators)
    found |= beside_start(loaded.recipe.stages, stage, inputs, saved, any(found["as_shipped"].values()))
    # What the card knows of the training is in the trained model; its form is the saved one's.
    saved.model_card_data = trained.model_card_data
    describe(loaded, stage, saved, staging, found)
    folder.finish(stage.name)
