"""Keys of a model block that other libraries take: attentions by transformers' names, LoRA by PEFT's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from st_jtcse.recipe.schema import ModelSpec, WeightedModelSpec
from st_jtcse.recipe.yaml_source import Loc
from st_jtcse.signatures import arguments_of, misfits, model_of
from st_jtcse.wording import shown, unknown

# What of LoraConfig follows from the model and the run.
_NOT_GIVEN = {
    "task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode",
}  # fmt: skip


def model_faults(spec: ModelSpec | WeightedModelSpec) -> Iterator[tuple[Loc, str]]:
    """Yield what is wrong with these keys: the place in the block, and a text that says what was expected there."""
    if spec.attn_implementation and (text := _attention_fault(spec.attn_implementation)):
        yield ("attn_implementation",), text
    if isinstance(spec, WeightedModelSpec):
        return
    for at, member in enumerate(spec.members or ()):
        for loc, text in model_faults(member):
            yield ("members", at, *loc), text
    if spec.lora is not None:
        yield from ((("lora", *loc), text) for loc, text in _lora_faults(spec.lora))


def _attention_fault(name: str) -> str | None:
    from transformers.integrations.hub_kernels import is_kernel
    from transformers.modeling_flash_attention_utils import FLASH_ATTENTION_COMPATIBILITY_MATRIX as FLASH
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from transformers.utils.import_utils import is_kernels_available

    known = ["eager", *(key for key in ALL_ATTENTION_FUNCTIONS.valid_keys() if "|" not in key)]
    if name not in known and not is_kernel(name):
        return unknown("an attention of transformers", name, known)
    versions = {f"flash_attention_{version}": found["general_availability_check"] for version, found in FLASH.items()}
    installed = versions[name]() if name in versions else not is_kernel(name)
    if installed or is_kernels_available():
        return None
    package = "pip install flash-attn, or pip install kernels" if name == "flash_attention_2" else "pip install kernels"
    return f"expected an attention that is installed, found {shown(name)}. Install it ({package}), or use 'sdpa'."


def _lora_faults(lora: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
    if find_spec("peft") is None:
        yield (), "expected PEFT, which 'lora' is put on with, found none. Install it: pip install \"st-jtcse[lora]\"."
        return
    from peft import LoraConfig

    arguments = {
        name: argument
        for name, argument in arguments_of(LoraConfig.__init__).items()
        if argument.annotation is not None and name not in _NOT_GIVEN
    }
    for name in lora:
        if name not in arguments:
            yield (name,), unknown("an argument of PEFT's LoraConfig", name, arguments, "Remove it.")
    given = {name: value for name, value in lora.items() if name in arguments}
    yield from (((name,), text) for name, text in misfits(model_of("LoraConfig", arguments), given))
    if isinstance(rank := lora.get("r"), int) and rank < 1:
        yield ("r",), f"expected a number of at least 1, found {rank}. Correct the value."
