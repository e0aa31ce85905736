"""Adapters: LoRA on the encoder of a stage's model, kept beside it and merged into it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from st_jtcse.atomic import to_json, write_atomically
from st_jtcse.errors import UserError
from st_jtcse.ownership import claim_hidden
from st_jtcse.recipe.ability import Ability, Need
from st_jtcse.recipe.yaml_source import Loc
from st_jtcse.signatures import arguments_of, misfits, model_of
from st_jtcse.unimported import must_import
from st_jtcse.wording import shown, unknown

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedModel

    from st_jtcse.recipe.consistency import PlacedStage
    from st_jtcse.recipe.schema import ModelSpec
    from st_jtcse.training.job import Job

ADAPTER = "adapter"
BASE = "base"  # What checkpoints, which hold the adapter alone, are an adapter of.
_CONFIG = "adapter_config.json"
_ALL_LINEAR = "all-linear"
# What of LoraConfig follows from the model and the run.
_NOT_GIVEN = {
    "task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path",
    "revision", "inference_mode",
}  # fmt: skip


class Adapters(Ability):
    """`model.lora`: an adapter is trained in place of the encoder's weights."""

    block = "model"
    fields = {
        "lora": (
            dict[str, Any] | None,
            Field(
                None,
                description="Train a LoRA adapter on the encoder in place of its weights: "
                "arguments of PEFT's LoraConfig, e.g. {r: 8}. The saved model has the adapter "
                "merged in; its folder adapter holds the adapter alone.",
            ),
        )
    }
    after = ("SentenceViews",)
    needing = (Need.LOSS,)
    folders = (BASE, ADAPTER)

    def faults(self, placed: PlacedStage) -> Iterator[tuple[Loc, str]]:
        """Refuse what is no argument of PEFT's."""
        lora = self.of(placed.spec)
        if lora is not None:
            for loc, text in _lora_faults(lora):
                yield placed.at("model", "lora", *loc), text

    def wrap(self, job: Job) -> None:
        """Put the adapter on."""
        add_adapter(job.model, self.of(job.stage), job.folder)

    def finish(self, job: Job) -> None:
        """Merge it, and keep it beside the model."""
        merge_adapter(job.model, job.stage.model, job.folder)
        job.files[ADAPTER] = job.folder / ADAPTER


def add_adapter(model: SentenceTransformer, lora: Mapping[str, Any], folder: Path) -> None:
    """Freeze a model's encoder and put a LoRA adapter on it; what stands behind the encoder is
    trained as it is.

    Args:
        model: The model to be trained.
        lora: Arguments of PEFT's LoraConfig. Without target modules PEFT's own choice for the
            encoder's, or a twin's towers', type.
        folder: Where the checkpoints go; the encoder is saved beside them, and goes with them.

    Raises:
        UserError: A target is no layer of the encoder, or PEFT refuses the arguments.
    """
    from peft import LoraConfig

    from st_jtcse import processes

    encoder: Any = model[0].model
    targets = lora.get("target_modules") or _usual_targets(encoder)
    _check_targets(
        encoder, [targets] if isinstance(targets, str) else targets, isinstance(targets, str)
    )
    with _told_of_peft():
        config = LoraConfig(**{**lora, "target_modules": targets})
    base = (folder / BASE).absolute()
    if processes.rank() == 0:
        if not base.exists():
            folder.mkdir(parents=True, exist_ok=True)
            new = claim_hidden(folder, BASE)
            encoder.save_pretrained(new)
            new.rename(base)
        # A run's folder may have been moved since.
        for path in folder.glob(f"checkpoint-*/{_CONFIG}"):
            _rename_base(path, str(base))
    processes.wait_for_all()
    encoder.name_or_path = str(base)
    with _told_of_peft():
        model.add_adapter(config)


def merge_adapter(model: SentenceTransformer, spec: ModelSpec, folder: Path) -> None:
    """Save the adapter of a trained model in the folder ``adapter``, and add it into the encoder's
    weights.

    The model is then an ordinary one.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    from st_jtcse import processes

    encoder: Any = model[0].model
    if processes.rank() == 0:
        # Said before it is saved: a file written anew may be cut off, and its part moved along.
        for config in encoder.peft_config.values():
            config.base_model_name_or_path = _public_base(spec)
        encoder.save_pretrained(folder / ADAPTER)
    # PEFT merges its own model class alone; Sentence-Transformers puts the layers into the encoder
    # itself.
    for name, layer in list(encoder.named_modules()):
        if hasattr(layer, "unload_and_optionally_merge_module"):
            encoder.set_submodule(name, layer.unload_and_optionally_merge_module(True, False, None))
        elif isinstance(layer, BaseTunerLayer):
            layer.merge()
            encoder.set_submodule(name, layer.get_base_layer())
    encoder._hf_peft_config_loaded = False
    del encoder.peft_config
    encoder.requires_grad_(True)
    encoder.name_or_path = ""


@contextmanager
def _told_of_peft() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, NotImplementedError) as error:
        raise UserError(
            f"lora: PEFT refuses these arguments: {' '.join(str(error).split())[:300]}"
        ) from error


def _usual_targets(encoder: Any) -> list[str]:
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as USUAL

    kind = getattr(encoder.config, "tower", encoder.config).model_type
    if kind not in USUAL:
        raise UserError(
            f"lora: PEFT names no usual layers of a {kind} model; name them, e.g. 'target_modules: "
            f"{_ALL_LINEAR}'."
        )
    return list(USUAL[kind])


def _check_targets(encoder: PreTrainedModel, targets: list[str], is_pattern: bool) -> None:
    """Refuse names that no layer has: PEFT passes over those that stand beside others."""
    names = [name for name, _ in encoder.named_modules()]
    for target in targets:
        try:
            ends = re.compile(target if is_pattern else rf"(.*\.)?{re.escape(target)}")
        except re.error as error:
            raise UserError(
                f"lora.target_modules: expected a pattern, found {shown(target)} ({error})."
            ) from error
        if target != _ALL_LINEAR and not any(ends.fullmatch(name) for name in names):
            layers = (
                (name, getattr(layer, "weight", None)) for name, layer in encoder.named_modules()
            )
            weighted = {
                name.rpartition(".")[2]
                for name, weight in layers
                if weight is not None and weight.dim() == 2
            }
            raise UserError(
                f"lora.target_modules: {unknown('the name of a layer', target, sorted(weighted))}"
            )


def _public_base(spec: ModelSpec) -> str:
    """Return the Hub id of the model that an adapter is of; empty where it is none, or was changed
    before.
    """
    from st_jtcse import embedded
    from st_jtcse.recipe.schema import STAGE_PREFIX

    name = spec.base
    changed = (spec.tower, spec.layers, spec.fresh) != (None, None, None)
    if (
        name is None
        or changed
        or name == embedded.NAME
        or name.startswith(STAGE_PREFIX)
        or Path(name).exists()
    ):
        return ""
    return name


def _rename_base(path: Path, base: str) -> None:
    config = json.loads(path.read_text(encoding="utf-8"))
    if config["base_model_name_or_path"] != base:
        write_atomically(path, to_json(config | {"base_model_name_or_path": base}))


def _lora_faults(lora: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
    if find_spec("peft") is None:
        yield (
            (),
            "expected PEFT, which 'lora' is put on with, found none. Install it: pip install "
            '"st-jtcse[lora]".',
        )
        return
    must_import()
    from peft import LoraConfig

    arguments = {
        name: argument
        for name, argument in arguments_of(LoraConfig.__init__).items()
        if argument.annotation is not None and name not in _NOT_GIVEN
    }
    for name in lora:
        if name not in arguments:
            yield (
                (name,),
                unknown("an argument of PEFT's LoraConfig", name, arguments, "Remove it."),
            )
    given = {name: value for name, value in lora.items() if name in arguments}
    yield from (((name,), text) for name, text in misfits(model_of("LoraConfig", arguments), given))
    if isinstance(rank := lora.get("r"), int) and rank < 1:
        yield ("r",), f"expected a number of at least 1, found {rank}. Correct the value."
