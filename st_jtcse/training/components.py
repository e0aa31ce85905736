"""Resolves what a recipe names in Python, in a closed world: loss classes and training arguments."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from st_jtcse.errors import UserError
from st_jtcse.training.schema import LossSpec
from st_jtcse.training.values import convert, misfit, resolved, settable, words
from st_jtcse.wording import nearest, shown, unknown

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from torch import nn

_BEST = "Give 'evaluate.dev': its Spearman correlation chooses the checkpoint"
_PUSH = "Use st-train --push"
_RUNS = "Give 'data' to train and 'evaluate' to evaluate"

# Arguments that follow from the rest of the recipe or from the command line, and where to say them instead.
_RUNNERS = {
    "output_dir": "Set the recipe's 'output_dir', or use st-train --output-dir",
    "seed": "Set the recipe's 'seed'",
    "data_seed": "Set the recipe's 'seed'",
    "resume_from_checkpoint": "Use st-train --resume",
    "load_best_model_at_end": _BEST,
    "metric_for_best_model": _BEST,
    "greater_is_better": _BEST,
    "do_train": _RUNS,
    "do_eval": _RUNS,
    "do_predict": _RUNS,
    "overwrite_output_dir": "Name another 'output_dir'",
    "push_to_hub": _PUSH,
}
_HUB_PREFIX = "hub_"

# torch also takes compound names, such as "cpu:gloo,cuda:nccl", beyond the choices of the command line.
_OPEN_CHOICES = frozenset({"ddp_backend"})
# What transformers 5 reads beside what it annotates.
_ALSO_ACCEPTED: dict[str, Any] = {"debug": None, "fsdp": bool | list[str]}


def loss_names(cross_encoder: bool = False) -> list[str]:
    """Return the names `loss.type` may give: our losses, then those of Sentence-Transformers.

    Args:
        cross_encoder: Whether the losses are of cross-encoders.
    """
    return list(_losses(cross_encoder))


def resolve_loss(type_name: str, cross_encoder: bool = False) -> type[nn.Module]:
    """Return the loss class of that name.

    Args:
        type_name: A name of `loss_names`.
        cross_encoder: Whether it is a loss of cross-encoders.

    Raises:
        UserError: If there is no such loss.
    """
    losses = _losses(cross_encoder)
    if type_name not in losses:
        raise UserError(f"loss.type: {unknown('the name of a loss', type_name, losses)}")
    return losses[type_name]


def loss_faults(spec: LossSpec, cross_encoder: bool = False) -> list[tuple[str, str]]:
    """Return what is wrong with a loss block: each faulty key, and a text that says what was expected there.

    Args:
        spec: The loss block.
        cross_encoder: Whether the model is a cross-encoder.
    """
    losses = _losses(cross_encoder)
    if spec.type not in losses:
        return [("type", unknown("the name of a loss", spec.type, losses))]
    parameters = _parameters(losses[spec.type])
    open_to_yaml = {name: parameter for name, parameter in parameters.items() if parameter.annotation is not None}
    faults: list[tuple[str, str]] = []
    for key, value in spec.arguments.items():
        if key not in parameters:
            faults.append((key, unknown(f"an argument of {spec.type}", key, open_to_yaml)))
        elif key not in open_to_yaml:
            faults.append((key, f"expected no value for what is Python code, found {shown(value)}. Remove '{key}'."))
        else:
            text = misfit(parameters[key].annotation, value)
            faults += [(key, text)] if text else []
    for name, parameter in parameters.items():
        if parameter.required and name not in spec.arguments:
            faults.append(_missing(spec.type, name, parameter))
    return [*faults, *_out_of_range(losses[spec.type], parameters, spec, {key for key, _ in faults})]


def build_loss(spec: LossSpec, model: SentenceTransformer | CrossEncoder) -> nn.Module:
    """Construct the loss of a recipe.

    Args:
        spec: The loss block.
        model: The model to train.

    Raises:
        UserError: If the block does not fit the loss class.
    """
    from sentence_transformers import CrossEncoder

    cross_encoder = isinstance(model, CrossEncoder)
    faults = loss_faults(spec, cross_encoder)
    if faults:
        raise UserError(*(f"loss.{key}: {text}" for key, text in faults))
    loss = resolve_loss(spec.type, cross_encoder)
    parameters = _parameters(loss)
    arguments = {key: convert(parameters[key].annotation, value) for key, value in spec.arguments.items()}
    try:
        return loss(model=model, **arguments)
    except ValueError as error:
        # Losses refuse values and combinations that their signatures allow, such as a temperature of 0.
        raise UserError(
            f"loss.type: expected arguments that {spec.type} accepts, found: {error} Correct them."
        ) from error


def argument_faults(args: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is wrong with training arguments: each faulty key, and a text that says what was expected there.

    Args:
        args: An `args` block; its keys are fields of `SentenceTransformerTrainingArguments`.
    """
    annotations = _argument_annotations()
    open_to_recipes = [name for name in annotations if not _runners(name)]
    faults: list[tuple[str, str]] = []
    for key, value in args.items():
        instead = _runners(key)
        if instead:
            # The value stays untold: it may be a token.
            faults.append((key, f"expected no '{key}' here, found one. {instead}, and remove '{key}'."))
        elif key not in annotations:
            near = nearest(key, open_to_recipes)
            way = f"Did you mean {near!r}?" if near else "Remove it."
            faults.append((key, f"expected a SentenceTransformerTrainingArguments field, found {shown(key)}. {way}"))
        elif annotations[key] is None:
            faults.append((key, f"expected no value for what is Python code, found {shown(value)}. Remove '{key}'."))
        else:
            text = misfit(annotations[key], value)
            faults += [(key, text)] if text else []
    return faults


@dataclasses.dataclass(frozen=True)
class _Parameter:
    annotation: Any | None  # What YAML can give; None if it can give nothing.
    default: Any  # inspect.Parameter.empty if there is none.

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def _losses(cross_encoder: bool) -> dict[str, type[nn.Module]]:
    from sentence_transformers.cross_encoder import losses as theirs_of_cross_encoders
    from sentence_transformers.sentence_transformer import losses as theirs
    from torch import nn

    from st_jtcse import losses as ours

    found: dict[str, type[nn.Module]] = {}
    for module in (ours, theirs_of_cross_encoders if cross_encoder else theirs):
        for name in module.__all__:
            candidate = getattr(module, name)
            if module is ours and name.startswith("CrossEncoder") != cross_encoder:
                continue
            # Their __all__ also lists enumerations of distances and a data loader.
            if isinstance(candidate, type) and issubclass(candidate, nn.Module):
                found.setdefault(name, candidate)
    return found


def _parameters(loss: type[nn.Module]) -> dict[str, _Parameter]:
    found = {}
    for name, parameter in inspect.signature(loss.__init__).parameters.items():
        if name in ("self", "model") or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        annotation = parameter.annotation
        if annotation is parameter.empty:
            # Several of their losses annotate no function argument; a plain default still tells the type.
            annotation = type(parameter.default) if isinstance(parameter.default, (bool, int, float, str)) else None
        else:
            annotation = resolved(annotation, loss.__init__.__module__)
        found[name] = _Parameter(None if annotation is None else settable(annotation), parameter.default)
    return found


def _out_of_range(
    loss: type[nn.Module], parameters: Mapping[str, _Parameter], spec: LossSpec, told: set[str]
) -> list[tuple[str, str]]:
    """Ask one of our losses for its values, the recipe's laid over the defaults."""
    from st_jtcse.losses.demands import Demands

    demands = getattr(loss, "demands", None)
    if not isinstance(demands, Demands):
        return []
    defaults = {name: parameter.default for name, parameter in parameters.items() if not parameter.required}
    # A value of a wrong type is told already, and compares with nothing.
    values = {name: value for name, value in (defaults | spec.arguments).items() if name not in told}
    return [(misfit.argument, misfit.expectation) for misfit in demands.misfits(values)]


def _missing(loss: str, name: str, parameter: _Parameter) -> tuple[str, str]:
    if parameter.annotation is None:
        return "type", (
            f"expected a loss whose arguments a recipe can give, found '{loss}', whose '{name}' is Python code. "
            "Choose another loss."
        )
    return name, f"expected {words(parameter.annotation)}, which {loss} requires, found none. Add '{name}'."


def _runners(key: str) -> str | None:
    return _PUSH if key.startswith(_HUB_PREFIX) else _RUNNERS.get(key)


def _argument_annotations() -> dict[str, Any | None]:
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments

    modules: dict[str, str] = {}
    for owner in reversed(Arguments.__mro__):
        modules.update(dict.fromkeys(inspect.get_annotations(owner), owner.__module__))
    found: dict[str, Any | None] = {}
    for field in dataclasses.fields(Arguments):
        if not field.init:
            continue
        choices = field.metadata.get("choices")
        annotation = resolved(field.type, modules[field.name])
        if choices and field.name not in _OPEN_CHOICES:
            annotation = Literal[(*choices, *((None,) if field.default is None else ()))]
        elif annotation is not None and field.name in _ALSO_ACCEPTED:
            annotation = annotation | _ALSO_ACCEPTED[field.name]
        found[field.name] = None if annotation is None else settable(annotation)
    return found
