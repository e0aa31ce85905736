"""The training arguments of one stage: its recipe's, completed by what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import parse_flag_from_env
from transformers.utils.import_utils import is_torch_bf16_gpu_available

from st_jtcse.errors import UserError, short_of_memory
from st_jtcse.recipe.ability import used
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.length_groups import LengthGroupedBatchSampler
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.row_order import random_batches

_FLAGS = Path("/proc/cpuinfo")


def training_arguments(stage: StageSpec, seed: int, output_dir: Path, **known: Any) -> Any:
    """Return the stage's arguments, completed by what follows from it; nothing changes them later.

    Args:
        stage: The stage.
        seed: Seed of its training and its data.
        output_dir: Where checkpoints go.
        known: What follows from its model and its dev set; nothing where they are not known yet.

    Raises:
        UserError: They contradict each other.
    """
    settings = _settings(stage) | {"seed": seed, "data_seed": seed, **known}
    if settings.get("fsdp") or parse_flag_from_env("ACCELERATE_USE_FSDP"):
        raise UserError(
            f"Stage {stage.name!r}: FSDP was chosen, but Sentence-Transformers' trainer neither "
            "saves a sharded model nor resumes with one; remove args.fsdp, or choose several "
            "devices without FSDP in 'accelerate config'."
        )
    try:
        arguments = kind_of(stage.model).arguments(output_dir=str(output_dir), **settings)
    except (ValueError, TypeError, ImportError) as error:
        told = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"Stage {stage.name!r}: args do not fit together: {told}. Correct them."
            f"{_bf16_hint(told)}"
        ) from error
    _check(stage, arguments)
    return arguments


def _settings(stage: StageSpec) -> dict[str, Any]:
    """Return what a stage's arguments are made of: its recipe's, and what follows from it."""
    # Without an accelerator there is nothing to pin memory for, and torch warns at every loader. A
    # loss that is not finite ends the training: to leave it out of the log, an accelerator would be
    # asked about it at every step.
    defaults: dict[str, Any] = {"report_to": "none", "logging_nan_inf_filter": False}
    defaults["dataloader_pin_memory"] = torch.accelerator.is_available()
    defaults["batch_sampler"] = random_batches
    settings: dict[str, Any] = defaults | stage.args
    # Null, which the trainer's annotation allows and its code does not.
    settings["report_to"] = settings["report_to"] or "none"
    if settings.get("bf16") == "auto":
        settings |= bf16_choice()
    strategy = stage.args.get("eval_strategy", "no")
    if strategy != "no":
        # The checkpoint that scores best on dev is the result, so each evaluation needs one.
        settings = {"save_strategy": strategy} | settings
        # Where nothing says how often it evaluates, the trainer does as often as it logs.
        if steps := stage.args.get("eval_steps") or stage.args.get("logging_steps"):
            settings = {"save_steps": steps} | settings
        settings |= {"load_best_model_at_end": True, "greater_is_better": True}
    if _is_grouped(stage):
        settings["batch_sampler"] = LengthGroupedBatchSampler
    for ability in used(stage):
        settings |= ability.arguments(stage)
    # Checkpoints are removed by what knows whether they are whole: see `most_checkpoints`.
    settings["save_total_limit"] = None
    return settings


def _check(stage: StageSpec, arguments: Any) -> None:
    """Refuse arguments that contradict each other, which the trainer would take."""
    if arguments.train_sampling_strategy != "random" and not _is_grouped(stage):
        raise UserError(
            f"Stage {stage.name!r}: Sentence-Transformers' trainer takes its rows as "
            "args.batch_sampler says; of args.train_sampling_strategy it can have "
            "'group_by_length', without a batch_sampler."
        )
    strategy = stage.args.get("eval_strategy", "no")
    if strategy == "no" and stage.evaluate is not None and stage.evaluate.patience is not None:
        raise UserError(
            f"Stage {stage.name!r}: evaluate.patience counts evaluations in training, and there "
            "are none; set args.eval_strategy, or remove it."
        )
    if (
        strategy == arguments.save_strategy == "steps"
        and arguments.save_steps != arguments.eval_steps
    ):
        raise UserError(
            f"Stage {stage.name!r}: args do not fit together: the checkpoint that scores best on "
            f"dev is the result, but save_steps is {arguments.save_steps} and eval_steps "
            f"{arguments.eval_steps}; remove save_steps, or say 'save_strategy: best'."
        )


def _is_grouped(stage: StageSpec) -> bool:
    """Tell whether a stage's batches are of sentences of similar length."""
    strategy = stage.args.get("train_sampling_strategy")
    return strategy == "group_by_length" and "batch_sampler" not in stage.args


def most_checkpoints(stage: StageSpec) -> int | None:
    """Return how many checkpoints a stage keeps; None for all."""
    if "save_total_limit" in stage.args:
        limit: int | None = stage.args["save_total_limit"]
        return limit
    if stage.args.get("eval_strategy", "no") == "no":
        return None
    return 1


def _bf16_hint(message: str) -> str:
    """Return what to add to the trainer's refusal of arguments, where it is about bf16 on a CPU."""
    if "bf16" not in message or torch.accelerator.is_available():
        return ""
    told = bf16_gain()
    return f" On a CPU bf16 needs args.use_cpu: true{f'; {told}' if told else ''}."


def bf16_gain() -> str:
    """Say whether this processor computes in bf16 itself; nothing where that cannot be known or
    does not matter.
    """
    own = None if torch.accelerator.is_available() else _bf16_flag()
    if own is None:
        return ""
    if own:
        return f"this processor supports bf16 ({own}), which makes steps faster"
    return "this processor does not support bf16, so bf16 makes steps slower"


def bf16_choice() -> dict[str, bool]:
    """Return the arguments that ``bf16: auto`` stands for: true where the machine computes in bf16
    itself.
    """
    if torch.accelerator.is_available():
        return {"bf16": is_torch_bf16_gpu_available()}
    if _bf16_flag():
        return {"bf16": True, "use_cpu": True}
    return {"bf16": False}


def _bf16_flag() -> str | None:
    """Return the processor's flag of bf16, an empty one without, None where that cannot
    be known.
    """
    try:
        flags = set(_FLAGS.read_text(encoding="utf-8").split())
    except OSError:
        return None
    return next((flag for flag in ("amx_bf16", "avx512_bf16") if flag in flags), "")


@contextmanager
def memory_told(stage: StageSpec, loss: Any, arguments: Any) -> Iterator[None]:
    """Let a training that runs out of memory say what of its recipe would need less."""
    try:
        yield
    except Exception as error:
        short = short_of_memory(error)
        if short is None:
            raise
        parts, batch = getattr(loss, "mini_batch_size", None), arguments.per_device_train_batch_size
        ways = []
        if parts:
            ways.append(f"lower mini_batch_size of the loss (now {parts})")
        elif hasattr(loss, "mini_batch_size"):
            ways.append("set mini_batch_size of the loss")
        ways.append(f"lower args.per_device_train_batch_size (now {batch})")
        ways.append("lower model.max_seq_length")
        if not parts and not arguments.gradient_checkpointing:
            ways.append("set args.gradient_checkpointing: true")
        raise UserError(
            f"Stage {stage.name!r}: {short}; {', '.join(ways[:-1])} or {ways[-1]}."
        ) from error
