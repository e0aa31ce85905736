"""One stage of a recipe: model, data, loss and arguments into one of Sentence-Transformers' trainers."""

from __future__ import annotations

import inspect
import logging
import time
from pathlib import Path
from typing import Any

import torch
from transformers import set_seed

from st_jtcse import processes
from st_jtcse.atomic import to_json, write_atomically
from st_jtcse.diagnostics import gmac
from st_jtcse.errors import UserError
from st_jtcse.hashing import weight_files_sha256
from st_jtcse.hub.card_results import TRAINING_RECORD
from st_jtcse.hub.cards import write_card
from st_jtcse.losses.catalogue import declaration_of, loss_class
from st_jtcse.losses.declaration import LossDeclaration
from st_jtcse.modules.listing import own_class
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.named_arguments import build_loss
from st_jtcse.recipe.schema import DEV, LossSpec, StageSpec
from st_jtcse.towers import TwinEncoderConfig
from st_jtcse.training import provenance
from st_jtcse.training.card import card_facts, reported_as, title
from st_jtcse.training.loss_weights import LossWeights
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.models import build_cross_encoder, build_model, resolver
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.seeds import derive
from st_jtcse.training.stage_inputs import Inputs
from st_jtcse.training.stopping import StopOnNonFiniteLoss, interruptible
from st_jtcse.training.training_set import training_set
from st_jtcse.training.training_time import TrainingTime, trained_before

logger = logging.getLogger(__name__)


def training_arguments(loaded: LoadedRecipe, stage: StageSpec, output_dir: Path) -> Any:
    """Return the stage's arguments: the recipe's, completed by what follows from it.

    Args:
        loaded: The recipe.
        stage: One of its stages.
        output_dir: Where checkpoints go.

    Raises:
        UserError: The arguments contradict each other.
    """
    given = stage.args
    seed = derive(loaded.recipe.seed, stage.name)
    # Without an accelerator there is nothing to pin memory for, and torch warns at every loader.
    defaults = {"report_to": "none", "dataloader_pin_memory": torch.accelerator.is_available()}
    settings: dict[str, Any] = defaults | given | {"seed": seed, "data_seed": seed}
    strategy = given.get("eval_strategy", "no")
    if strategy != "no":
        # The checkpoint that scores best on dev is the result, so each evaluation needs one.
        settings = {"save_strategy": strategy, "save_total_limit": 1} | settings
        if "eval_steps" in given:
            settings = {"save_steps": given["eval_steps"]} | settings
        settings |= {
            "load_best_model_at_end": True,
            "metric_for_best_model": f"eval_{DEV}_{kind_of(stage.model).metric}",
            "greater_is_better": True,
        }
    try:
        return kind_of(stage.model).arguments(output_dir=str(output_dir), **settings)
    except (ValueError, ImportError) as error:
        raise UserError(f"Stage {stage.name!r}: args do not fit together: {' '.join(str(error).split())}") from error


def run_stage(loaded: LoadedRecipe, stage: StageSpec, inputs: Inputs, folder: RunFolder) -> None:
    """Train, save and evaluate one stage; afterwards the folder holds it finished.

    Args:
        loaded: The recipe.
        stage: The stage; without a loss its model is saved as it is.
        inputs: From :func:`load_inputs`.
        folder: The run; its last checkpoint of the stage is continued.

    Raises:
        UserError: A model does not load or fit, or the loss is not finite.
        KeyboardInterrupt: After an orderly stop with a checkpoint.
    """
    seed = derive(loaded.recipe.seed, stage.name)
    set_seed(seed)
    model = _model(stage, folder, seed)
    record = {
        "name": stage.name,
        "title": title(loaded.recipe, stage),
        "reported_as": reported_as(loaded, stage),
        "environment": provenance.environment(),
        "seed": seed,
        "loss": stage.loss.model_dump() if stage.loss else None,
        "data_sha256": inputs.hashes,
        "spearman_start": evaluate(model, stage, inputs),
        "steps": 0,
        "seconds": 0.0,
    }
    if stage.loss is not None:
        record |= _train(loaded, stage, stage.loss, model, inputs, folder)

    if processes.rank() == 0:
        _finish(loaded, stage, model, inputs, record, folder)
    processes.wait_for_all()


def _finish(
    loaded: LoadedRecipe, stage: StageSpec, model: Any, inputs: Inputs, record: dict[str, Any], folder: RunFolder
) -> None:
    """Save and score the model, and put it with its record in the stage's place."""
    staging = folder.staging(stage.name)
    kind = kind_of(stage.model)
    kind.save(model, staging)
    # The saved model is what counts: it is read back before it is scored.
    trust = stage.model.trust_remote_code or own_class(staging) is not None
    saved = kind.load(staging, trust)
    record |= {
        "parameters": sum(parameter.numel() for parameter in saved.parameters()),
        "gmac": round(gmac(saved), 4),
        "spearman": evaluate(saved, stage, inputs),
        "weights_sha256": weight_files_sha256(staging),
    }
    write_atomically(staging / TRAINING_RECORD, to_json(record))
    # What the card knows of the training is in the trained model; its form is the saved one's.
    saved.model_card_data = model.model_card_data
    twin = getattr(saved.config, "model_type", None) == TwinEncoderConfig.model_type
    write_card(saved, staging, card_facts(loaded, stage, twin), record)
    folder.finish(stage.name)


def _model(stage: StageSpec, folder: RunFolder, seed: int) -> Any:
    if stage.model.cross_encoder is not None:
        return build_cross_encoder(stage.model, resolver(folder))
    with_head = stage.loss is not None and _declaration(stage).needs_pooler(stage.loss.arguments)
    return build_model(stage.model, resolver(folder), with_head=with_head, seed=seed)


def _declaration(stage: StageSpec) -> LossDeclaration:
    """Return what the stage's loss is; nothing in particular for a stage without."""
    if stage.loss is None:
        return LossDeclaration()
    return declaration_of(loss_class(stage.loss.type, stage.model.cross_encoder is not None))


def _train(
    loaded: LoadedRecipe,
    stage: StageSpec,
    spec: LossSpec,
    model: Any,
    inputs: Inputs,
    folder: RunFolder,
) -> dict[str, Any]:
    """Train the model in place and return what the record says of it."""
    seed = derive(loaded.recipe.seed, stage.name)
    cross_encoder = stage.model.cross_encoder is not None
    loss: Any = build_loss(_seeded(spec, seed, cross_encoder), model, cross_encoder)
    if inputs.pair_scores is not None and declaration_of(type(loss)).judged_pairs:
        loss.use_pair_scores(inputs.pair_scores.pairs)
    train, told = training_set(loaded.recipe, stage, inputs, loss, resolver(folder))
    arguments = training_arguments(loaded, stage, folder.stage(stage.name))
    own_weights = LossWeights(loss)
    # One process looks first, because it deletes what is broken.
    if processes.rank() == 0:
        folder.checkpoint(stage.name, own_weights.files)
    processes.wait_for_all()
    checkpoint = folder.checkpoint(stage.name, own_weights.files)
    earlier = 0.0
    if checkpoint:
        own_weights.load(checkpoint)
        earlier = trained_before(checkpoint)
    loss.register_forward_hook(StopOnNonFiniteLoss(stage.name))
    with interruptible() as interrupt:
        trainer = kind_of(stage.model).trainer(
            model,
            arguments,
            train_dataset=train,
            loss=loss,
            evaluator=inputs.evaluators.get(DEV) if arguments.load_best_model_at_end else None,
            callbacks=[interrupt, own_weights, TrainingTime()],
        )
        # Dropout must not depend on what was evaluated before: a resumed stage starts the same way.
        set_seed(seed)
        began = time.perf_counter()
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        seconds = earlier + time.perf_counter() - began
    if interrupt.requested:
        raise KeyboardInterrupt(f"stage {stage.name!r} at step {trainer.state.global_step}")
    return told | {
        "sentences": len(train),
        "steps": trainer.state.global_step,
        "best_step": trainer.state.best_global_step or trainer.state.global_step,
        "seconds": round(seconds, 1),
        "log": trainer.state.log_history,
    }


def evaluate(model: Any, stage: StageSpec, inputs: Inputs) -> dict[str, float]:
    """Return Spearman x 100, of cosines or of a cross-encoder's scores, on each evaluation set."""
    metric = kind_of(stage.model).metric
    return {
        name: round(100 * float(evaluator(model)[f"{name}_{metric}"]), 4)
        for name, evaluator in inputs.evaluators.items()
    }


def _seeded(spec: LossSpec, seed: int, cross_encoder: bool) -> LossSpec:
    """Give a loss with random choices the stage's seed, unless the recipe gives its own."""
    if "seed" not in inspect.signature(loss_class(spec.type, cross_encoder)).parameters:
        return spec
    return LossSpec.model_validate({"seed": seed} | spec.model_dump())
