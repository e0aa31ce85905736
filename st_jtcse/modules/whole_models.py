"""What makes a model whole: the weights that its configuration asks for, all of them finite, and a
tokenizer.
"""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from transformers import PreTrainedModel

from st_jtcse.errors import UserError

_PACKAGE = Path(__file__).parents[1]
_SAVE_AGAIN = "copy the whole folder, or save the model again"
_checking = ContextVar("_checking", default=False)


@contextmanager
def loading_whole() -> Iterator[None]:
    """Refuse with a UserError each model that transformers loads meanwhile from other weights than
    its own.

    What is missing transformers draws at random, and says so in a report that Sentence-Transformers
    does not hand on. So it is asked for here, of each load, whoever calls for it.
    """
    if _checking.get():
        yield
        return
    plain = vars(PreTrainedModel)["from_pretrained"]

    def from_pretrained(
        kind: Any, /, *args: Any, output_loading_info: bool = False, **kwargs: Any
    ) -> Any:
        # Sizes that differ are in the report too, where they have names.
        asked = {"ignore_mismatched_sizes": True} | kwargs | {"output_loading_info": True}
        model, report = plain.__func__(kind, *args, **asked)
        _check_weights(model, report)
        check_finite(model, model.name_or_path)
        return (model, report) if output_loading_info else model

    # Its table of the same report would only repeat what is refused, and worry of what may be.
    logger, token = logging.getLogger("transformers.modeling_utils"), _checking.set(True)
    logger.addFilter(_is_no_table)
    # By setattr: to mypy a method is nothing to assign to.
    setattr(PreTrainedModel, "from_pretrained", classmethod(from_pretrained))  # noqa: B010
    try:
        yield
    finally:
        setattr(PreTrainedModel, "from_pretrained", plain)  # noqa: B010
        logger.removeFilter(_is_no_table)
        _checking.reset(token)


def _is_no_table(record: logging.LogRecord) -> bool:
    return "LOAD REPORT" not in str(record.msg)


def _check_weights(model: PreTrainedModel, report: dict[str, Any]) -> None:
    """Refuse weights that differ from what the configuration asks for.

    A checkpoint may come without a pooler or with another model's head, and be given a head.
    """
    place, kind = model.name_or_path, model.config.model_type
    if missing := set(report["missing_keys"]) - _drawn(model, set(report["missing_keys"])):
        raise UserError(
            f"{place} lacks the weight {min(missing)!r}; it is not a complete {kind} model, so "
            f"{_SAVE_AGAIN}."
        )
    for key, found, wanted in sorted(report["mismatched_keys"]):
        raise UserError(
            f"The weight {key!r} in {place} has the shape {tuple(found)}, and {tuple(wanted)} is "
            "asked for; restore "
            "the configuration that it was saved with."
        )
    for key in sorted(report["unexpected_keys"]):
        if _is_of_a_further_layer(
            model, key.removeprefix(f"{model.base_model_prefix}.").split(".")
        ):
            raise UserError(
                f"{place} holds the weight {key!r}, of a layer that its configuration does not "
                "have; restore the "
                "configuration that it was saved with."
            )


def _drawn(model: PreTrainedModel, missing: set[str]) -> set[str]:
    """Return the weights that a checkpoint may leave to be drawn."""
    prefix = f"{model.base_model_prefix}."
    has_head = any(key.startswith(prefix) for key in model.state_dict())
    if has_head and type(model).__name__ in (model.config.architectures or ()):
        return set()
    pooler = {key for key in model.state_dict() if key.removeprefix(prefix).startswith("pooler.")}
    head = {key for key in missing if has_head and not key.startswith(prefix)}
    # Half a pooler is a damaged one.
    return head | (pooler if pooler <= missing else set())


def _is_of_a_further_layer(model: nn.Module, parts: list[str]) -> bool:
    holder: Any = model
    for part in parts:
        if isinstance(holder, nn.ModuleList) and part.isdecimal() and int(part) >= len(holder):
            return True
        holder = getattr(holder, part, None)
    return False


def check_finite(model: nn.Module, place: str | os.PathLike[str]) -> None:
    """Refuse weights among which some are infinite or no number; `place` is where they were loaded
    from.
    """
    for name, weight in model.state_dict().items():
        if not _is_finite(weight):
            raise UserError(
                f"The weight {name!r} in {place} is not finite; save the model again, from a sound "
                "one."
            )


def _is_finite(weight: Any) -> bool:
    if (
        not isinstance(weight, Tensor)
        or not weight.is_floating_point()
        or weight.is_meta
        or not weight.numel()
    ):
        return True
    # Both are no number where one weight is; nothing of the weight's size is made. Eight-bit
    # formats cannot do it.
    return weight.element_size() < 2 or all(
        bool(bound.isfinite()) for bound in torch.aminmax(weight)
    )


def check_model(model: nn.Module, name: str | os.PathLike[str]) -> None:
    """Refuse a loaded model whose tokenizer knows no words, whose pooling is another's, or with
    weights not finite.

    A length beyond a model's positions is lowered: longer inputs would find none.

    Args:
        model: A SentenceTransformer, a CrossEncoder or an encoder, loaded under
            :func:`loading_whole`.
        name: What it was loaded by.
    """
    for module in model.modules():
        if isinstance(module, Transformer) and module.tokenizer is not None:
            check_tokenizer(module.tokenizer, name)
            lower_length(module)
    before: Any = None
    for module in model.children() if isinstance(model, nn.Sequential) else ():
        if isinstance(module, Pooling) and isinstance(before, Transformer):
            size, wanted = module.embedding_dimension, before.get_embedding_dimension()
            if size != wanted:
                raise UserError(
                    f"The Pooling of {name} is for embeddings of size {size}, and its encoder's "
                    f"have {wanted}; restore "
                    "the configuration that it was saved with."
                )
        if not isinstance(module, Transformer):
            check_finite(module, name)
        before = module


def check_tokenizer(tokenizer: Any, name: str | os.PathLike[str]) -> None:
    """Refuse a tokenizer that knows special tokens alone: without its files, transformers builds
    such a one.
    """
    # What reads images has no words.
    if hasattr(tokenizer, "get_vocab") and set(tokenizer.get_vocab()) <= set(
        tokenizer.all_special_tokens
    ):
        raise UserError(
            f"{name} lacks its tokenizer's vocabulary (tokenizer.json, vocab.txt or the like); "
            f"{_SAVE_AGAIN}."
        )


def check_length(model: nn.Module, max_seq_length: int | None) -> None:
    """Refuse a length in tokens for which a model has learned no positions; None is the model's
    own.
    """
    positions = _positions(model)
    if max_seq_length is not None and positions is not None and max_seq_length > positions:
        raise UserError(
            f"A max_seq_length of {max_seq_length} is more than the {positions} tokens for which "
            "the model has "
            f"positions; give {positions} or less."
        )


def lower_length(encoder: Transformer) -> None:
    """Have an encoder cut its inputs where its positions end, if the length that it came with is
    more.
    """
    positions = _positions(encoder)
    if positions is not None and (encoder.max_seq_length or 0) > positions:
        encoder.max_seq_length = positions


def _positions(model: nn.Module) -> int | None:
    found = [
        # RoBERTa's positions begin behind that of padding.
        module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
        for name, module in model.named_modules()
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding)
    ]
    return min(found, default=None)


def is_unreadable(error: Exception) -> bool:
    """Tell whether an error is what the libraries say of files they cannot read, not a defect or
    want of memory.
    """
    if isinstance(error, UserError | MemoryError | torch.OutOfMemoryError):
        return False
    if isinstance(error, OSError | ValueError | KeyError | ImportError | SafetensorError):
        return True
    # Anything can come of a configuration whose values make no sense, here in the towers alone.
    origin = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)[-1:]]
    return not any(
        path.is_relative_to(_PACKAGE) and path.parent.name != "towers" for path in origin
    )


def reason_of(error: Exception, folder: Path) -> str:
    """Say in a few words why the libraries could not read a model: the file that is damaged, else
    what they say.
    """
    for path in sorted(path for path in (*folder.glob("*"), *folder.glob("*/*")) if path.is_file()):
        if fault := fault_of(path):
            return f"{path.relative_to(folder)} {fault}"
    if isinstance(error, UnpicklingError):
        return "its pickled weights are damaged, or more than weights, which is not read"
    return " ".join(str(error).split()) or type(error).__name__


def fault_of(path: Path) -> str | None:
    """Say what is wrong with one of a model's files, as far as the file alone tells it; None if
    nothing is.
    """
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                unsound = next(
                    (name for name in file.keys() if not _is_finite(file.get_tensor(name))), None
                )
            return unsound and f"holds the weight {unsound!r}, which is not finite"
        if path.suffix == ".json":
            kind, wanted = (list, "list") if path.name == "modules.json" else (dict, "object")
            return (
                None
                if isinstance(json.loads(path.read_text(encoding="utf-8")), kind)
                else f"is not a JSON {wanted}"
            )
    except (SafetensorError, OSError):
        return "is damaged or not whole"
    except (ValueError, RecursionError):
        return "is not JSON"
    return None
