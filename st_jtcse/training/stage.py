"""One stage of a run: its model is assembled, trained, saved, read back, scored and described."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import set_seed

from st_jtcse import processes
from st_jtcse.atomic import to_json, write_atomically
from st_jtcse.diagnostics import gmac
from st_jtcse.hashing import weight_files_sha256
from st_jtcse.hub.card_results import TRAINING_RECORD
from st_jtcse.hub.cards import write_card
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.models import build_cross_encoder, build_model, resolver
from st_jtcse.training.provenance import environment
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.stage_card import card_facts, reported_as, title
from st_jtcse.training.stage_inputs import Inputs
from st_jtcse.training.stage_training import train


def run_stage(loaded: LoadedRecipe, stage: StageSpec, inputs: Inputs, folder: RunFolder) -> None:
    """Train, save and evaluate one stage, from its last checkpoint; afterwards the folder holds it finished.

    A stage without a loss is saved as it is. Raises UserError if a model does not load or fit, or the loss is not
    finite, and KeyboardInterrupt after an orderly stop with a checkpoint.
    """
    # The stage's own seed, in 0..2^31-1.
    digest = hashlib.sha256(f"{loaded.recipe.seed}/{stage.name}".encode()).digest()
    seed = int.from_bytes(digest[:4], "big") >> 1
    set_seed(seed)
    model: Any
    if stage.model.cross_encoder is not None:
        model = build_cross_encoder(stage.model, resolver(folder))
    else:
        with_head = stage.loss is not None and stage.declaration.needs_pooler(stage.loss.arguments)
        model = build_model(stage.model, resolver(folder), with_head=with_head, seed=seed)
    found: dict[str, Any] = {
        "seed": seed,
        "loss": stage.loss.model_dump() if stage.loss else None,
        "data_sha256": inputs.hashes,
        "spearman_start": kind_of(stage.model).scores(model, inputs.evaluators),
        "steps": 0,
        "seconds": 0.0,
    }
    if stage.loss is not None:
        cache = loaded.recipe.cache_dir
        found |= train(stage, stage.loss, model, inputs, folder, seed, Path(cache).absolute() if cache else None)
    if processes.rank() == 0:
        _save(loaded, stage, model, found, inputs.evaluators, folder)
    processes.wait_for_all()


def _save(
    loaded: LoadedRecipe,
    stage: StageSpec,
    model: Any,
    found: Mapping[str, Any],
    evaluators: Mapping[str, Any],
    folder: RunFolder,
) -> None:
    """Save and score a trained model, and put it with its record, so far `found`, in the stage's place."""
    staging = folder.staging(stage.name)
    kind = kind_of(stage.model)
    kind.save(model, staging)
    # The saved model is what counts: it is read back before it is scored.
    saved = kind.load(staging, stage.model.trust_remote_code)
    record = {
        "name": stage.name,
        "title": title(loaded.recipe, stage),
        "reported_as": reported_as(loaded, stage),
        "environment": environment(),
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
