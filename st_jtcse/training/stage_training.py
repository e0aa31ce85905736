"""One stage's training: rows, loss and arguments into a trainer of Sentence-Transformers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, set_seed

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.recipe.data_blocks import DEV
from st_jtcse.recipe.named_arguments import build_loss
from st_jtcse.recipe.schema import LossSpec, StageSpec
from st_jtcse.training.callbacks import Interrupt, LossWeights, TrainingTime, stop_if_not_finite
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.stage_inputs import Inputs, training_set


def training_arguments(stage: StageSpec, seed: int, output_dir: Path) -> Any:
    """Return the stage's arguments, completed by what follows from it; raises UserError if they contradict each other.

    Checkpoints go into `output_dir`.
    """
    # Without an accelerator there is nothing to pin memory for, and torch warns at every loader.
    defaults = {"report_to": "none", "dataloader_pin_memory": torch.accelerator.is_available()}
    settings: dict[str, Any] = defaults | stage.args | {"seed": seed, "data_seed": seed}
    strategy = stage.args.get("eval_strategy", "no")
    if strategy != "no":
        # The checkpoint that scores best on dev is the result, so each evaluation needs one.
        settings = {"save_strategy": strategy, "save_total_limit": 1} | settings
        if "eval_steps" in stage.args:
            settings = {"save_steps": stage.args["eval_steps"]} | settings
        settings |= {
            "load_best_model_at_end": True,
            "metric_for_best_model": f"eval_{DEV}_{kind_of(stage.model).metric}",
            "greater_is_better": True,
        }
    try:
        return kind_of(stage.model).arguments(output_dir=str(output_dir), **settings)
    except (ValueError, ImportError) as error:
        raise UserError(f"Stage {stage.name!r}: args do not fit together: {' '.join(str(error).split())}") from error


def train(
    stage: StageSpec,
    spec: LossSpec,
    model: Any,
    inputs: Inputs,
    folder: RunFolder,
    seed: int,
    cache_dir: Path | None,
    callbacks: Sequence[TrainerCallback] = (),
) -> dict[str, Any]:
    """Train a model in place, from its last checkpoint if there is one, and return what the stage's record says of it.

    Round trips and teacher vectors are kept in `cache_dir`; None is the default. `callbacks` are the trainer's.
    Raises UserError if the loss is not finite or a model does not fit, and KeyboardInterrupt after an orderly stop
    with a checkpoint.
    """
    cross_encoder = stage.model.cross_encoder is not None
    loss: Any = build_loss(spec, model, cross_encoder, seed)
    if inputs.pair_scores is not None and stage.declaration.judged_pairs:
        loss.use_pair_scores(inputs.pair_scores.pairs)
    dataset, told = training_set(stage, inputs, loss, folder, cache_dir)
    arguments = training_arguments(stage, seed, folder.stage(stage.name))
    own_weights = LossWeights(loss, model)
    # One process looks first, because it deletes what is broken.
    if processes.rank() == 0:
        folder.checkpoint(stage.name, own_weights.files)
    processes.wait_for_all()
    checkpoint = folder.checkpoint(stage.name, own_weights.files)
    if checkpoint:
        own_weights.load(checkpoint)
    clock = TrainingTime()
    loss.register_forward_hook(lambda module, inputs, output: stop_if_not_finite(stage.name, output))
    with Interrupt() as interrupt:
        trainer = kind_of(stage.model).trainer(
            model,
            arguments,
            train_dataset=dataset,
            loss=loss,
            evaluator=inputs.evaluators.get(DEV) if arguments.load_best_model_at_end else None,
            callbacks=[*callbacks, interrupt, own_weights, clock],
        )
        # Dropout must not depend on what was evaluated before: a resumed stage starts the same way.
        set_seed(seed)
        began = time.perf_counter()
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        seconds = clock.before + time.perf_counter() - began
    if interrupt.requested:
        raise KeyboardInterrupt(f"stage {stage.name!r} at step {trainer.state.global_step}")
    return told | {
        "sentences": len(dataset),
        "steps": trainer.state.global_step,
        "best_step": trainer.state.best_global_step or trainer.state.global_step,
        "seconds": round(seconds, 1),
        "log": trainer.state.log_history,
    }
