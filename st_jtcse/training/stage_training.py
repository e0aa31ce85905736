"""One stage's training: its rows, loss and arguments in a trainer of Sentence-Transformers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sentence_transformers.base.model_card import BaseModelCardCallback
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, TrainerState, set_seed

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.evaluation.recalled_vectors import not_recalling
from st_jtcse.recipe.blocks import DEV
from st_jtcse.recipe.named_arguments import build_loss
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.callbacks import (
    FiniteLoss,
    Interrupt,
    LossWeights,
    Patience,
    TrainingTime,
    TrainLoss,
)
from st_jtcse.training.checkpoints import (
    Checkpoints,
    check_best,
    check_circumstances,
    checkpoint_at,
    last_whole,
    state_of,
)
from st_jtcse.training.job import Job
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.row_order import ReleaseRows
from st_jtcse.training.stage_arguments import memory_told, most_checkpoints, training_arguments

# Rows that the examples of a model card are drawn from.
_ROWS_OF_CARD = 100_000


def prepare(job: Job) -> None:
    """Build a stage's loss and the rows that it trains on."""
    stage, spec = job.stage, job.stage.loss
    assert spec is not None
    job.own_loss = build_loss(spec, job.model, stage.model.scores_pairs, job.seed)
    job.loss = job.own_loss
    job.prepare()


def train(job: Job, callbacks: Sequence[TrainerCallback] = ()) -> None:
    """Train the model of a stage that is prepared, in place, from its last checkpoint if there is
    one, and complete the job's record.

    `callbacks` are the trainer's. Raises UserError if the loss is not finite or a model does not
    fit, and KeyboardInterrupt after an orderly stop.
    """
    stage, model = job.stage, job.model
    job.arguments = _arguments(job)
    job.wrap()
    own_weights, mean_loss = LossWeights(job.own_loss, model), TrainLoss(job.loss)
    if checkpoint := last_whole(job.folder):
        check_circumstances(checkpoint, job.inputs.hashes)
        own_weights.load(checkpoint)
        mean_loss.load(checkpoint)
    clock, patience = TrainingTime(), Patience(stage.evaluate.patience if stage.evaluate else None)
    beside: list[TrainerCallback] = [patience, FiniteLoss(stage.name, job.loss), own_weights]
    beside += [mean_loss, Checkpoints(job.inputs.hashes, most_checkpoints(stage)), clock]
    beside.append(ReleaseRows(getattr(job.inputs.sentences, "release", None)))
    # A card's examples are else drawn from all rows, which are read from the disk for it.
    if len(job.dataset) > _ROWS_OF_CARD:
        model.model_card_data.set_widget_examples(job.dataset.select(range(_ROWS_OF_CARD)))
    with Interrupt() as interrupt, memory_told(stage, job.own_loss, job.arguments):
        trainer = _trainer(job, [*callbacks, interrupt, *job.callbacks, *beside])
        # Dropout must not depend on what was evaluated before: a resumed stage starts the same way.
        set_seed(job.seed)
        began = time.perf_counter()
        was_over = _go(job, trainer, patience, checkpoint)
        seconds = clock.before + time.perf_counter() - began
    if processes.in_any(interrupt.requested):
        raise KeyboardInterrupt(f"stage {stage.name!r} at step {trainer.state.global_step}")
    if not trainer.state.global_step:
        raise UserError(_no_batch(stage))
    _take_weights(stage, model, trainer, job.folder, was_over)
    job.record = {
        "sentences": len(job.dataset),
        **job.record,
        "seconds": round(seconds, 1),
        **_story(trainer.state),
    }


def _no_batch(stage: StageSpec) -> str:
    return (
        f"Stage {stage.name!r} cannot take a step: its training rows make no batch; add rows, "
        "lower args.per_device_train_batch_size, or remove args.batch_sampler or "
        "args.dataloader_drop_last."
    )


def _arguments(job: Job) -> Any:
    """Return a stage's training arguments, with what follows from its model and its dev set."""
    known: dict[str, Any] = {}
    # A model that puts a prompt before every sentence is trained as it is used.
    if job.stage.args.get("prompts") is None:
        known["prompts"] = job.model.prompts.get(job.model.default_prompt_name) or None
    if job.stage.args.get("eval_strategy", "no") != "no":
        metric = kind_of(job.stage.model).metric_of(job.inputs.evaluators[DEV])
        known["metric_for_best_model"] = f"eval_{DEV}_{metric}"
    return training_arguments(job.stage, job.seed, job.folder, **known)


def _trainer(job: Job, callbacks: Sequence[TrainerCallback]) -> Any:
    chooses = job.arguments.load_best_model_at_end
    trainer = kind_of(job.stage.model).trainer(
        job.model,
        job.arguments,
        train_dataset=job.dataset if job.stream is None else job.stream,
        loss=job.loss,
        evaluator=job.inputs.evaluators.get(DEV) if chooses else None,
        callbacks=[*callbacks],
        data_collator=job.collator,
    )
    for around in job.collators:
        trainer.data_collator = around(trainer.data_collator)
    if processes.rank() > 0:
        # 2026-11: transformers 5.23 calls this in every process, and Sentence-Transformers 6.2
        # takes it for the first's: all would write the same files at the same time.
        trainer._save = lambda *_: None
    # What is told of a run is up to the callbacks given.
    for printing in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(printing)
    if "batch_sampler" in job.stage.args and not len(trainer.get_train_dataloader()):
        raise UserError(_no_batch(job.stage))
    return trainer


def _story(state: TrainerState) -> dict[str, Any]:
    """Return what a stage's record says of the steps."""
    return {
        "steps": state.global_step,
        "best_step": state.best_global_step or state.global_step,
        "best_dev": None if state.best_metric is None else round(100 * state.best_metric, 4),
        "log": state.log_history,
    }


def _go(job: Job, trainer: Any, patience: Patience, checkpoint: Path | None) -> bool:
    """Train to the end, from a checkpoint if there is one, and return whether that was the end
    already.
    """
    if checkpoint and patience.is_over(trainer.args, state := state_of(checkpoint)):
        # Cut off after its last step: the trainer would take one step more.
        _tell(trainer, state)
        return True
    with ExitStack() as during, _workers_told(), not_recalling():
        for context in job.during:
            during.enter_context(context())
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
