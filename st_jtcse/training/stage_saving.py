"""The end of a stage: its model saved, read back, scored and described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from st_jtcse.atomic import to_json, write_atomically
from st_jtcse.diagnostics import gmac
from st_jtcse.hashing import weight_files_sha256
from st_jtcse.hub.card_results import TRAINING_RECORD
from st_jtcse.hub.cards import write_card
from st_jtcse.modules.listing import own_class
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training import provenance
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.stage_card import card_facts, reported_as, title


def save(
    loaded: LoadedRecipe,
    stage: StageSpec,
    model: Any,
    found: Mapping[str, Any],
    evaluators: Mapping[str, Any],
    folder: RunFolder,
) -> None:
    """Save and score a model, and put it with its record in the stage's place."""
    staging = folder.staging(stage.name)
    kind = kind_of(stage.model)
    kind.save(model, staging)
    # The saved model is what counts: it is read back before it is scored.
    saved = kind.load(staging, stage.model.trust_remote_code or own_class(staging) is not None)
    record = {
        "name": stage.name,
        "title": title(loaded.recipe, stage),
        "reported_as": reported_as(loaded, stage),
        "environment": provenance.environment(),
        **found,
        "parameters": sum(parameter.numel() for parameter in saved.parameters()),
        "gmac": round(gmac(saved), 4),
        "spearman": kind.scores(saved, evaluators),
        "weights_sha256": weight_files_sha256(staging),
    }
    write_atomically(staging / TRAINING_RECORD, to_json(record))
    # What the card knows of the training is in the trained model; its form is the saved one's.
    saved.model_card_data = model.model_card_data
    write_card(saved, staging, card_facts(loaded, stage, staging), record)
    folder.finish(stage.name)
