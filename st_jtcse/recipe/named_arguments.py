"""What a recipe names of other libraries, checked against them: losses, training arguments,
attentions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from st_jtcse.errors import UserError
from st_jtcse.recipe.blocks import WeightedModelSpec
from st_jtcse.recipe.schema import LossSpec, ModelSpec
from st_jtcse.recipe.yaml_source import Loc
from st_jtcse.signatures import (
    Argument,
    arguments_of,
    converted,
    misfits,
    model_of,
    resolved,
    settable,
)
from st_jtcse.unimported import current, fields_of, module, must_import
from st_jtcse.wording import nearest, shown, unknown, words

if TYPE_CHECKING:
    from torch import nn

_PUSH = "Use st-train --push"
# Arguments that follow from the rest of the recipe or from the command line, and where to say them
# instead.
_RUNNERS = {
    "output_dir": "Set the recipe's 'output_dir', or use st-train --output-dir",
    **dict.fromkeys(("seed", "data_seed"), "Set the recipe's 'seed'"),
    "resume_from_checkpoint": "Use st-train --resume",
    **dict.fromkeys(
        ("load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
        "Give 'evaluate.dev': its score chooses the checkpoint",
    ),
    **dict.fromkeys(
        ("do_train", "do_eval", "do_predict"), "Give 'data' to train and 'evaluate' to evaluate"
    ),
    "overwrite_output_dir": "Name another 'output_dir'",
    "push_to_hub": _PUSH,
}
_HUB_PREFIX = "hub_"
# torch also takes compound names, such as "cpu:gloo,cuda:nccl", beyond the choices of the command
# line.
_OPEN_CHOICES = frozenset({"ddp_backend"})
_COUNT = Annotated[int, Field(ge=1)]
_NOT_NEGATIVE = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_SHARE = Annotated[float, Field(ge=0, lt=1)]
# What the libraries take without a word and do not mean: they loop over nothing, step backwards, or
# learn NaN.
_RANGES: dict[str, Any] = {
    **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size"), _COUNT),
    **dict.fromkeys(
        ("max_steps", "gradient_accumulation_steps", "dataloader_prefetch_factor"), _COUNT
    ),
    **dict.fromkeys(
        ("eval_accumulation_steps", "torch_empty_cache_steps", "ddp_timeout", "ddp_bucket_cap_mb"),
        _COUNT,
    ),
    "num_train_epochs": Annotated[float, Field(gt=0, allow_inf_nan=False)],
    **dict.fromkeys(("learning_rate", "weight_decay", "adam_epsilon", "eval_delay"), _NOT_NEGATIVE),
    **dict.fromkeys(("adam_beta1", "adam_beta2", "label_smoothing_factor"), _SHARE),
    **dict.fromkeys(("warmup_steps", "neftune_noise_alpha"), _NOT_NEGATIVE),
    "max_grad_norm": Annotated[
        float, Field(ge=0)
    ],  # Infinite: the norm is logged and nothing is cut.
    "warmup_ratio": Annotated[float, Field(ge=0, le=1)] | None,
    **dict.fromkeys(
        ("logging_steps", "save_steps", "eval_steps"),
        Annotated[float, Field(gt=0, allow_inf_nan=False)],
    ),
    "dataloader_num_workers": Annotated[int, Field(ge=0)],
}
# What transformers 5 reads beside what it annotates, and what is chosen for it.
_ALSO_ACCEPTED: dict[str, Any] = {"debug": None, "fsdp": bool | list[str], "bf16": Literal["auto"]}


def loss_faults(spec: LossSpec, scores_pairs: bool = False) -> list[tuple[str, str]]:
    """Return what is wrong with a loss block: each faulty key, and a text that says what was
    expected there.
    """
    from st_jtcse.losses.catalogue import declaration_of, loss_class
    from st_jtcse.losses.declaration import DeclaredLoss

    try:
        loss: Any = loss_class(spec.type, scores_pairs)
    except UserError as error:
        return [("type", str(error))]
    arguments, declaration = arguments_of(loss.__init__), declaration_of(loss)
    found, told = f"found '{spec.type}'", None
    for name, argument in arguments.items():
        if argument.required and argument.annotation is None:
            told = f"arguments a recipe can give, {found}, whose '{name}' is Python code"
            break
    if told is None and declaration.beyond:
        told = f"data a recipe can give, {found}, which takes {declaration.beyond}"
    if told is not None:
        return [("type", f"expected a loss whose {told}. Choose another loss.")]
    faults = dict(_name_faults(spec, arguments, declaration.moved))
    given = {key: value for key, value in spec.arguments.items() if key not in faults}
    if issubclass(loss, DeclaredLoss):
        faults |= dict(loss.misfits(given))
    else:
        faults |= dict(misfits(model_of(spec.type, arguments), given))
    told_in_order = [key for key in {**spec.arguments, **faults} if key in faults]
    return [*((key, faults[key]) for key in told_in_order), *_absent(spec, arguments)]


def _name_faults(
    spec: LossSpec, arguments: Mapping[str, Argument], moved: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the arguments of a block that a loss has not, or not for a recipe."""
    open_to_yaml = [name for name, argument in arguments.items() if argument.annotation is not None]
    for key, value in spec.arguments.items():
        if key in open_to_yaml and key not in moved:
            continue
        if key in arguments and key not in open_to_yaml:
            yield key, _python_code(key, value)
        elif key in moved:
            found = f"found {shown(key)}, which it had in an earlier version"
            yield key, f"expected an argument of {spec.type}, {found}. {moved[key]}"
        else:
            yield key, unknown(f"an argument of {spec.type}", key, open_to_yaml)


def _absent(spec: LossSpec, arguments: Mapping[str, Argument]) -> Iterator[tuple[str, str]]:
    """Yield the arguments that a loss requires and a block has not."""
    for name, argument in arguments.items():
        if argument.required and name not in spec.arguments:
            wanted = f"expected {words(argument.annotation)}, which {spec.type} requires"
            yield name, f"{wanted}, found none. Add '{name}'."


def build_loss(
    spec: LossSpec, model: Any, scores_pairs: bool = False, seed: int | None = None
) -> nn.Module:
    """Construct the loss of a recipe; raises UserError if the block does not fit the loss class.

    A loss with random choices is given `seed`, unless the block gives its own.
    """
    from st_jtcse.losses.catalogue import loss_class
    from st_jtcse.losses.declaration import DeclaredLoss

    faults = loss_faults(spec, scores_pairs)
    if faults:
        raise UserError(*(f"loss.{key}: {text}" for key, text in faults))
    loss: Any = loss_class(spec.type, scores_pairs)
    known = arguments_of(loss.__init__)
    given = ({"seed": seed} if seed is not None and "seed" in known else {}) | spec.arguments
    arguments = converted(model_of(spec.type, known), given)
    try:
        built: nn.Module = loss(model=model, **arguments)
    except ValueError as error:
        if issubclass(loss, DeclaredLoss):
            raise  # Ours declare what they refuse, which was checked above.
        # The libraries' refuse values and combinations that their signatures allow, such as a scale
        # of 0.
        text = (
            f"loss.type: expected arguments that {spec.type} accepts, found: {error} Correct them."
        )
        raise UserError(text) from error
    return built


def argument_faults(args: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is wrong with an `args` block: each faulty key, and a text that says what was
    expected there.
    """
    known = _training_arguments(current())
    faults: dict[str, str] = {}
    for key, value in args.items():
        instead = _PUSH if key.startswith(_HUB_PREFIX) else _RUNNERS.get(key)
        if instead:
            # The value stays untold: it may be a token.
            faults[key] = f"expected no '{key}' here, found one. {instead}, and remove '{key}'."
        elif key not in known:
            open_to_all = [name for name in known if not name.startswith(_HUB_PREFIX)]
            near = nearest(key, [name for name in open_to_all if name not in _RUNNERS])
            way = f"Did you mean {near!r}?" if near else "Remove it."
            faults[key] = (
                f"expected a SentenceTransformerTrainingArguments field, found {shown(key)}. {way}"
            )
        elif known[key]().annotation is None:
            faults[key] = _python_code(key, value)
    own = {key: known[key]() for key in args if key not in faults}
    # A default is always right, also where it stands for "not given" and is beyond the range, as -1
    # for max_steps.
    given = {
        key: value
        for key, value in args.items()
        if key not in faults and (type(value), value) != (type(own[key].default), own[key].default)
    }
    taken = {key: own[key] for key in given}
    faults |= dict(misfits(model_of("SentenceTransformerTrainingArguments", taken), given))
    return [(key, faults[key]) for key in args if key in faults]


def _python_code(key: str, value: Any) -> str:
    return f"expected no value for what is Python code, found {shown(value)}. Remove '{key}'."


@cache  # Apart for those that are read.
def _training_arguments(read: object | None) -> dict[str, Callable[[], Argument]]:
    """Return what looks up each argument."""
    owner = module("sentence_transformers").SentenceTransformerTrainingArguments
    return {
        name: cache(partial(_argument, name, field, home))
        for name, (field, home) in fields_of(owner).items()
    }


def _argument(name: str, look_up: Callable[[], dataclasses.Field[Any]], home: str) -> Argument:
    field = look_up()
    choices = field.metadata.get("choices")
    annotation = resolved(field.type, home)
    if choices and name not in _OPEN_CHOICES:
        annotation = Literal[(*choices, *((None,) if field.default is None else ()))]
    elif annotation is not None and name in _ALSO_ACCEPTED:
        annotation = annotation | _ALSO_ACCEPTED[name]
    annotation = _RANGES.get(name, annotation)
    return Argument(None if annotation is None else settable(annotation), field.default)


def model_faults(spec: ModelSpec | WeightedModelSpec) -> Iterator[tuple[Loc, str]]:
    """Yield what is wrong with these keys: the place in the block, and a text that says what was
    expected there.
    """
    if spec.attn_implementation and (text := _attention_fault(spec.attn_implementation)):
        yield ("attn_implementation",), text
    if isinstance(spec, WeightedModelSpec):
        return
    for at, member in enumerate(spec.members or ()):
        for loc, text in model_faults(member):
            yield ("members", at, *loc), text


def _attention_fault(name: str) -> str | None:
    must_import()
    from transformers.integrations.hub_kernels import is_kernel
    from transformers.modeling_flash_attention_utils import (
        FLASH_ATTENTION_COMPATIBILITY_MATRIX as FLASH,
    )
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from transformers.utils.import_utils import is_kernels_available

    known = ["eager", *(key for key in ALL_ATTENTION_FUNCTIONS.valid_keys() if "|" not in key)]
    if name not in known and not is_kernel(name):
        return unknown("an attention of transformers", name, known)
    versions = {
        f"flash_attention_{version}": found["general_availability_check"]
        for version, found in FLASH.items()
    }
    installed = versions[name]() if name in versions else not is_kernel(name)
    if installed or is_kernels_available():
        return None
    package = "pip install kernels"
    if name == "flash_attention_2":
        package = f"pip install flash-attn, or {package}"
    return (
        f"expected an attention that is installed, found {shown(name)}. Install it ({package}), or "
        "use 'sdpa'."
    )
