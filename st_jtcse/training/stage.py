"""One stage of a run: its model is assembled, trained, saved and scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import set_seed

from st_jtcse import processes
from st_jtcse.losses.catalogue import declaration_of, loss_class
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.models import build_cross_encoder, build_model, resolver
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.seeds import derive
from st_jtcse.training.stage_inputs import Inputs
from st_jtcse.training.stage_saving import save
from st_jtcse.training.stage_training import train


def run_stage(loaded: LoadedRecipe, stage: StageSpec, inputs: Inputs, folder: RunFolder) -> None:
    """Train, save and evaluate one stage; afterwards the folder holds it finished."""
    seed = derive(loaded.recipe.seed, stage.name)
    set_seed(seed)
    model = _model(stage, folder, seed)
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
        save(loaded, stage, model, found, inputs.evaluators, folder)
    processes.wait_for_all()


def _model(stage: StageSpec, folder: RunFolder, seed: int) -> Any:
    if stage.model.cross_encoder is not None:
        return build_cross_encoder(stage.model, resolver(folder))
    needs_pooler = False
    if stage.loss is not None:
        needs_pooler = declaration_of(loss_class(stage.loss.type)).needs_pooler(stage.loss.arguments)
    return build_model(stage.model, resolver(folder), with_head=needs_pooler, seed=seed)
