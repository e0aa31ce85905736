"""One stage's training: rows, loss and arguments into a trainer of Sentence-Transformers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sentence_transformers.base.model_card import BaseModelCardCallback
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, TrainerState, set_seed

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.recipe.data_blocks import DEV
from st_jtcse.recipe.named_arguments import build_loss
from st_jtcse.recipe.schema import LossSpec, StageSpec
from st_jtcse.training.adapters import add_adapter, merge_adapter
from st_jtcse.training.callbacks import (
    FiniteLoss,
    Interrupt,
    LossWeights,
    Patience,
    TrainingTime,
    TrainLoss,
    reading_embeddings,
)
from st_jtcse.training.checkpoints import (
    Checkpoints,
    check_best,
    check_circumstances,
    checkpoint_at,
    last_whole,
    state_of,
)
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.stage_arguments import RowOrder, memory_told, training_arguments
from st_jtcse.training.stage_inputs import Inputs, LiveTeachers, training_set
from st_jtcse.training.two_views import views_of


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
    """Train a model in place, from its last checkpoint if there is one, and return what the stage's
    record says of it.

    Round trips and teacher vectors are kept in `cache_dir`; None is the default. `callbacks` are
    the trainer's. Raises UserError if the loss is not finite or a model does not fit, and
    KeyboardInterrupt after an orderly stop.
    """
    loss: Any = build_loss(spec, model, stage.model.cross_encoder is not None, seed)
    inner: Any = loss.loss if spec.matryoshka_dims else loss
    if inputs.pair_scores is not None and stage.declaration.judged_pairs:
        inner.use_pair_scores(inputs.pair_scores.pairs)
    dataset, told = training_set(stage, inputs, loss, folder, cache_dir)
    arguments = _arguments(stage, model, inputs, folder, seed)
    views = views_of(stage, model, dataset, arguments, seed)
    if stage.model.lora is not None:
        add_adapter(model, stage.model.lora, folder.stage(stage.name))
    own_weights, mean_loss = LossWeights(inner, model), TrainLoss(loss)
    if checkpoint := last_whole(folder.stage(stage.name)):
        check_circumstances(checkpoint, inputs.hashes)
        own_weights.load(checkpoint)
        mean_loss.load(checkpoint)
    keeper = Checkpoints(inputs.hashes, arguments.save_total_limit)
    arguments.save_total_limit = None
    clock, patience = TrainingTime(), Patience(stage.evaluate.patience if stage.evaluate else None)
    beside: list[TrainerCallback] = [
        patience,
        FiniteLoss(stage.name, loss),
        own_weights,
        mean_loss,
        keeper,
        clock,
    ]
    beside.append(RowOrder(getattr(inputs.sentences, "release", None)))
    if (
        len(dataset) > 100_000
    ):  # A card's examples are else drawn from all rows, which are read from the disk for it.
        model.model_card_data.set_widget_examples(dataset.select(range(100_000)))
    with Interrupt() as interrupt, memory_told(stage, inner, arguments):
        trainer = kind_of(stage.model).trainer(
            model,
            arguments,
            train_dataset=inputs.stream(seed) or dataset,
            loss=loss,
            evaluator=inputs.evaluators.get(DEV) if arguments.load_best_model_at_end else None,
            callbacks=[*callbacks, interrupt, *beside, *([views] if views else [])],
            data_collator=views,
        )
        if not all(teacher.cache for teacher in stage.teachers):
            trainer.data_collator = LiveTeachers(stage, loss, folder, trainer.data_collator)
        for printing in (
            ProgressCallback,
            PrinterCallback,
        ):  # What is told of a run is up to the callbacks given.
            trainer.remove_callback(printing)
        if "batch_sampler" in stage.args and not len(trainer.get_train_dataloader()):
            raise UserError(_no_batch(stage))
        # Dropout must not depend on what was evaluated before: a resumed stage starts the same way.
        set_seed(seed)
        began = time.perf_counter()
        was_over = _go(trainer, patience, checkpoint, stage)
        seconds = clock.before + time.perf_counter() - began
    if interrupt.requested:
        raise KeyboardInterrupt(f"stage {stage.name!r} at step {trainer.state.global_step}")
    if not trainer.state.global_step:
        raise UserError(_no_batch(stage))
    _take_weights(stage, model, trainer, folder.stage(stage.name), was_over)
    if stage.model.lora is not None:
        merge_adapter(model, stage.model, folder.stage(stage.name))
    return (
        {"sentences": len(dataset)} | told | {"seconds": round(seconds, 1), **_story(trainer.state)}
    )


def _no_batch(stage: StageSpec) -> str:
    return (
        f"Stage {stage.name!r} cannot take a step: its training rows make no batch; add rows, "
        "lower args.per_device_train_batch_size, or remove args.batch_sampler or "
        "args.dataloader_drop_last."
    )


def _arguments(stage: StageSpec, model: Any, inputs: Inputs, folder: RunFolder, seed: int) -> Any:
    """Return a stage's training arguments, with what follows from its model and its dev set."""
    arguments = training_arguments(stage, seed, folder.stage(stage.name))
    if (
        arguments.prompts is None
    ):  # A model that puts a prompt before every sentence is trained as it is used.
        arguments.prompts = model.prompts.get(model.default_prompt_name) or None
    if arguments.load_best_model_at_end:
        metric = kind_of(stage.model).metric_of(inputs.evaluators[DEV])
        arguments.metric_for_best_model = f"eval_{DEV}_{metric}"
    return arguments


def _story(state: TrainerState) -> dict[str, Any]:
    """Return what a stage's record says of the steps."""
    return {
        "steps": state.global_step,
        "best_step": state.best_global_step or state.global_step,
        "best_dev": None if state.best_metric is None else round(100 * state.best_metric, 4),
        "log": state.log_history,
    }


def _go(trainer: Any, patience: Patience, checkpoint: Path | None, stage: StageSpec) -> bool:
    """Train to the end, from a checkpoint if there is one, and return whether that was the end
    already.
    """
    if checkpoint and patience.is_over(trainer.args, state := state_of(checkpoint)):
        # Cut off after its last step: the trainer would take one step more.
        _tell(trainer, state)
        return True
    with reading_embeddings(stage.declaration, trainer.model), _workers_told():
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return False


@contextmanager
def _workers_told() -> Iterator[None]:
    """Tell a fault of the data that a loading worker met; torch puts its traceback before it."""
    try:
        yield
    except UserError as error:
        kind = type(error)
        _, in_worker, told = str(error).rpartition(f"{kind.__module__}.{kind.__qualname__}: ")
        if not in_worker:
            raise
        raise kind(*told.strip().splitlines()) from error


def _take_weights(stage: StageSpec, model: Any, trainer: Any, folder: Path, was_over: bool) -> None:
    """Give the model the weights of the best step, or of the last where they were trained
    before.
    """
    state, checkpoint = trainer.state, None
    if trainer.args.load_best_model_at_end and state.best_global_step:
        # The trainer takes the best weights too, but goes on with the last where that fails.
        checkpoint = check_best(folder, state.best_global_step)
    elif was_over:
        checkpoint = checkpoint_at(folder, state.global_step)
    if checkpoint and processes.rank() == 0:
        saved = kind_of(stage.model).load(checkpoint, stage.model.trust_remote_code)
        model.load_state_dict(saved.state_dict())


def _tell(trainer: Any, state: TrainerState) -> None:
    """Let a trainer that has nothing left to do know what was done, with the clock and what writes
    the card.
    """
    trainer.state = state
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, (TrainingTime, BaseModelCardCallback)):
            callback.on_train_begin(trainer.args, state, trainer.control, model=trainer.model)
