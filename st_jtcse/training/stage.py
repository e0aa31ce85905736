"""One stage of a recipe: model, data, loss and arguments into a SentenceTransformerTrainer."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from transformers import set_seed

from st_jtcse import data
from st_jtcse.data.teachers import with_teacher_labels
from st_jtcse.errors import UserError
from st_jtcse.losses import JTCSELoss
from st_jtcse.modules import save_for_inference
from st_jtcse.training import provenance
from st_jtcse.training.components import build_loss, resolve_loss
from st_jtcse.training.guards import StopOnNonFiniteLoss, interruptible
from st_jtcse.training.models import build_model, resolver
from st_jtcse.training.recipe import LoadedRecipe, stage_args, stage_data, stage_evaluate
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.schema import LossSpec, SourceSpec, StageSpec
from st_jtcse.training.seeds import derive

logger = logging.getLogger(__name__)

DEV = "dev"
EVALUATION_BATCH = 64


@dataclass(frozen=True)
class Inputs:
    """What a stage reads from files, loaded before anything is trained.

    Args:
        sentences: Training sentences.
        evaluators: Spearman evaluators by name; ``dev`` chooses the checkpoint.
        hashes: SHA-256 of every data set.
    """

    sentences: data.Sentences
    evaluators: dict[str, EmbeddingSimilarityEvaluator]
    hashes: dict[str, str]


def load_inputs(loaded: LoadedRecipe, stages: Sequence[StageSpec]) -> dict[str, Inputs]:
    """Read and check the data of stages; what several of them share is read once.

    Args:
        loaded: The recipe.
        stages: Stages of it.

    Returns:
        The inputs by stage name.

    Raises:
        UserError: A file is missing or faulty, or there are fewer sentences than one batch.
    """
    recipe = loaded.recipe
    texts: dict[tuple[data.Source, ...], data.Sentences] = {}
    graded: dict[tuple[data.Source, tuple[float, float]], data.Pairs] = {}
    inputs = {}
    for stage in stages:
        sources = tuple(_source(spec) for spec in stage_data(recipe, stage).train)
        if sources not in texts:
            texts[sources] = data.load_sentences(sources)
        _check_batch(stage, stage_args(recipe, stage), len(texts[sources].dataset))
        hashes = {"train": texts[sources].sha256}
        evaluators = {}
        if evaluate := stage_evaluate(recipe, stage):
            named = ({DEV: evaluate.dev} if evaluate.dev else {}) | evaluate.test
            for name, spec in named.items():
                key = _source(spec), evaluate.score_range
                if key not in graded:
                    graded[key] = data.load_pairs(*key)
                hashes[name] = graded[key].sha256
                evaluators[name] = _evaluator(name, graded[key])
        inputs[stage.name] = Inputs(texts[sources], evaluators, hashes)
    return inputs


def _check_batch(stage: StageSpec, args: dict[str, Any], sentences: int) -> None:
    batch = int(args.get("per_device_train_batch_size", 8))
    if sentences < batch:
        raise UserError(
            f"Stage {stage.name!r} has {sentences} training sentences, fewer than one batch of {batch}; "
            "add sentences or lower args.per_device_train_batch_size."
        )


def _evaluator(name: str, pairs: data.Pairs) -> EmbeddingSimilarityEvaluator:
    return EmbeddingSimilarityEvaluator(
        pairs.sentences1,
        pairs.sentences2,
        pairs.scores,
        batch_size=EVALUATION_BATCH,
        name=name,
        main_similarity="cosine",
        similarity_fn_names=["cosine"],
        write_csv=False,
    )


def training_arguments(
    loaded: LoadedRecipe, stage: StageSpec, output_dir: Path
) -> SentenceTransformerTrainingArguments:
    """Return the stage's arguments: the recipe's, completed by what follows from it.

    Args:
        loaded: The recipe.
        stage: One of its stages.
        output_dir: Where checkpoints go.

    Raises:
        UserError: The arguments contradict each other.
    """
    given = stage_args(loaded.recipe, stage)
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
            "metric_for_best_model": f"eval_{DEV}_spearman_cosine",
            "greater_is_better": True,
        }
    try:
        return SentenceTransformerTrainingArguments(output_dir=str(output_dir), **settings)
    except (ValueError, ImportError) as error:
        raise UserError(f"Stage {stage.name!r}: args do not fit together: {' '.join(str(error).split())}") from error


def run_stage(loaded: LoadedRecipe, stage: StageSpec, inputs: Inputs, folder: RunFolder) -> dict[str, Any]:
    """Train, save and evaluate one stage; afterwards the folder holds it finished.

    Args:
        loaded: The recipe.
        stage: The stage.
        inputs: From :func:`load_inputs`.
        folder: The run; its last checkpoint of the stage is continued.

    Returns:
        The stage's record, as in results.json.

    Raises:
        UserError: A model does not load or fit, or the loss is not finite.
        KeyboardInterrupt: After an orderly stop with a checkpoint.
    """
    seed = derive(loaded.recipe.seed, stage.name)
    folder.recover(stage.name)
    set_seed(seed)
    model = build_model(stage.model, resolver(folder), with_head=_needs_head(stage.loss))
    start = evaluate(model, inputs)
    train = _label(stage, inputs.sentences.dataset, folder)
    arguments = training_arguments(loaded, stage, folder.stage(stage.name))

    loss = build_loss(_seeded(stage.loss, seed), model)
    loss.register_forward_hook(StopOnNonFiniteLoss(stage.name))
    with interruptible() as interrupt:
        trainer = SentenceTransformerTrainer(
            model,
            arguments,
            train_dataset=train,
            loss=loss,
            evaluator=inputs.evaluators.get(DEV) if arguments.load_best_model_at_end else None,
            callbacks=[interrupt],
        )
        # Dropout must not depend on what was evaluated before: a resumed stage starts the same way.
        set_seed(seed)
        began = time.perf_counter()
        checkpoint = folder.checkpoint(stage.name)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        seconds = time.perf_counter() - began
    if interrupt.requested:
        raise KeyboardInterrupt(f"stage {stage.name!r} at step {trainer.state.global_step}")

    staging = folder.staging(stage.name)
    save_for_inference(model, staging)
    # The saved model is what counts: it is read back before it is scored.
    saved = SentenceTransformer(str(staging), trust_remote_code=stage.model.trust_remote_code)
    record = {
        "name": stage.name,
        "seed": seed,
        "loss": stage.loss.model_dump(),
        "parameters": sum(parameter.numel() for parameter in saved.parameters()),
        "sentences": len(train),
        "blank_lines_skipped": inputs.sentences.skipped_blank,
        "steps": trainer.state.global_step,
        "best_step": trainer.state.best_global_step or trainer.state.global_step,
        "seconds": round(seconds, 1),
        "spearman_start": start,
        "spearman": evaluate(saved, inputs),
        "log": trainer.state.log_history,
        "data_sha256": inputs.hashes,
        "weights_sha256": provenance.weights_sha256(staging),
    }
    folder.finish(stage.name, record)
    return record


def evaluate(model: SentenceTransformer, inputs: Inputs) -> dict[str, float]:
    """Return cosine Spearman x 100 on each evaluation set."""
    return {
        name: round(100 * float(evaluator(model)[f"{name}_spearman_cosine"]), 4)
        for name, evaluator in inputs.evaluators.items()
    }


def _needs_head(spec: LossSpec) -> bool:
    return issubclass(resolve_loss(spec.type), JTCSELoss) and bool(spec.arguments.get("ictm_weight", True))


def _seeded(spec: LossSpec, seed: int) -> LossSpec:
    """Give a loss with random choices the stage's seed, unless the recipe gives its own."""
    if "seed" not in inspect.signature(resolve_loss(spec.type)).parameters:
        return spec
    return LossSpec.model_validate({"seed": seed} | spec.model_dump())


def _label(stage: StageSpec, sentences: Dataset, folder: RunFolder) -> Dataset:
    if not stage.teachers:
        return sentences
    resolve = resolver(folder)
    teachers = [SentenceTransformer(resolve(teacher.model)) for teacher in stage.teachers]
    return with_teacher_labels(sentences, teachers, [teacher.weight for teacher in stage.teachers])


def _source(spec: SourceSpec) -> data.Source:
    return data.Source(
        file=Path(spec.file) if spec.file else None,
        dataset=spec.dataset,
        config=spec.config,
        split=spec.split,
        data_files=spec.data_files,
        revision=spec.revision,
        columns=tuple(spec.columns) if spec.columns else None,
        limit=spec.limit,
    )
