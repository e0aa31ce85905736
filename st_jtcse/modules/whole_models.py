"""What makes a model whole: the weights that its configuration asks for, all of them finite, and a
tokenizer.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from operator import itemgetter
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from sentence_transformers import CrossEncoder
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from sentence_transformers.util import batch_to_device
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import PreTrainedModel

from st_jtcse.errors import UserError
from st_jtcse.modules.shared_words import WORDS_OF_WHOLE, share_words
from st_jtcse.wording import shown

_PACKAGE = Path(__file__).parents[1]
_SAVE_AGAIN = "copy the whole folder, or save the model again"
_checking = ContextVar("_checking", default=False)

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
# A weight of a file takes more than these bytes for its name and place alone, and a byte holds two
# numbers at most, each of which is counted twice: when the model is built, and when it is filled.
_LEAST_ENTRY, _NUMBERS_OF_A_BYTE = 64, 4
# What is drawn beside a checkpoint: heads and poolers.
_SLACK, _SLACK_NUMBERS = 500, 2**24
# Keys that are named where a message does not tell which of them it means.
_FEW = 3
# More than any model has.
_MOST_WEIGHTS = 50_000


@contextmanager
def loading_whole() -> Iterator[None]:
    """Refuse with a UserError each model that transformers loads meanwhile from other weights than
    its own.

    What is missing transformers draws at random, and says so in a report that it gives to whoever
    asks for it. Sentence-Transformers, which makes most of the calls, does not ask. So the call is
    completed here: ``PreTrainedModel.from_pretrained`` is replaced as long as any thread loads a
    model so, and does in all others what it did.
    """
    if _checking.get():
        yield
        return
    token = _checking.set(True)
    _replacement.enter()
    try:
        yield
    finally:
        _replacement.leave()
        _checking.reset(token)


class _Replacement:
    """Counts the threads that load under :func:`loading_whole`; the last one puts back what was."""

    def __init__(self) -> None:
        self._threads, self._lock = 0, threading.Lock()
        self.plain: Any = None

    def enter(self) -> None:
        with self._lock:
            self._threads += 1
            if self._threads == 1:
                self.plain = vars(PreTrainedModel)["from_pretrained"]
                # By setattr: to mypy a method is nothing to assign to.
                setattr(PreTrainedModel, "from_pretrained", classmethod(_from_pretrained))  # noqa: B010
                # Its table of the report would only repeat what is refused.
                logging.getLogger(_REPORTS).addFilter(_is_no_table)

    def leave(self) -> None:
        with self._lock:
            self._threads -= 1
            if not self._threads:
                setattr(PreTrainedModel, "from_pretrained", self.plain)  # noqa: B010
                logging.getLogger(_REPORTS).removeFilter(_is_no_table)


_REPORTS = "transformers.modeling_utils"
_replacement = _Replacement()


def _from_pretrained(
    kind: Any, /, *args: Any, output_loading_info: bool = False, **kwargs: Any
) -> Any:
    """Load a model and check the report, where a thread is to load whole ones."""
    plain = _replacement.plain.__func__
    if not _checking.get():
        return plain(kind, *args, output_loading_info=output_loading_info, **kwargs)
    # Sizes that differ are in the report too, where they have names.
    asked = {"ignore_mismatched_sizes": True} | kwargs | {"output_loading_info": True}
    place = args[0] if args else kwargs.get("pretrained_model_name_or_path")
    if not kwargs.get("trust_remote_code"):
        # A model's own files may ask for it, by way of Sentence-Transformers: to run what its
        # weights are pickled with, or anyone's kernels, and to write wherever they like.
        asked |= {"weights_only": True, "allow_all_kernels": False}
        if "offload_folder" in asked:
            raise UserError(
                f"{place} says where weights are to be written (offload_folder), which only a "
                "model that is trusted may (trust_remote_code)."
            )
    with within_files(place):
        model, report = plain(kind, *args, **asked)
    _check_weights(model, report)
    check_finite(model, model.name_or_path)
    if output_loading_info:
        return (model, report)
    return model


@contextmanager
def within_files(place: str | os.PathLike[str] | None) -> Iterator[None]:
    """Refuse a model that outgrows the files of its weights while it is built, before that takes
    hours and all memory.

    Args:
        place: The model's folder; of a Hub id, whose files are not here, only what no model has is
            refused.
    """
    files = _weight_files(place)
    size = sum(path.stat().st_size for path in files)
    most_weights = _SLACK + size // _LEAST_ENTRY if files else _MOST_WEIGHTS
    most_numbers = _SLACK_NUMBERS + size * _NUMBERS_OF_A_BYTE if files else None
    weights = numbers = 0
    here = threading.get_ident()

    def count(module: nn.Module, name: str, weight: Any) -> None:
        nonlocal weights, numbers
        # The hook is of all threads.
        if weight is None or threading.get_ident() != here:
            return
        weights += 1
        numbers += weight.numel()
        if weights > most_weights or (most_numbers is not None and numbers > most_numbers):
            held = f"its files of {size / 2**20:.1f} MiB can hold" if files else "any model has"
            raise UserError(
                f"{place}: config.json asks for far more weights than {held}; restore the "
                "configuration that it was saved with."
            )

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def _weight_files(place: str | os.PathLike[str] | None) -> list[Path]:
    folder = Path(place or "")
    if place is None or not folder.is_dir():
        return []
    adapter = folder / "adapter_config.json"
    if adapter.is_file():  # The weights are those of its base.
        base = json.loads(adapter.read_text(encoding="utf-8")).get("base_model_name_or_path")
        is_further = isinstance(base, str) and not (Path(base) / "adapter_config.json").exists()
        return _weight_files(base) if is_further else []
    found = [path for pattern in WEIGHTS for path in folder.glob(pattern)]
    return [path for path in found if path.is_file()]


def _is_no_table(record: logging.LogRecord) -> bool:
    return not _checking.get() or "LOAD REPORT" not in str(record.msg)


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
            "asked for; restore the configuration that it was saved with."
        )
    for key in sorted(report["unexpected_keys"]):
        if _is_of_a_further_layer(
            model, key.removeprefix(f"{model.base_model_prefix}.").split(".")
        ):
            raise UserError(
                f"{place} holds the weight {key!r}, of a layer that its configuration does not "
                "have; restore the configuration that it was saved with."
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
            check_words(module.tokenizer, _words_of(module), name)
            lower_length(module)
            _check_room(module, module.max_seq_length, f"The max_seq_length of {name}")
        elif isinstance(module, StaticEmbedding):
            check_words(module.tokenizer, module.embedding.num_embeddings, name)
    before: Any = None
    for module in model.children() if isinstance(model, nn.Sequential) else ():
        if isinstance(module, Pooling) and isinstance(before, Transformer):
            size, wanted = module.embedding_dimension, before.get_embedding_dimension()
            if size != wanted:
                raise UserError(
                    f"The Pooling of {name} is for embeddings of size {shown(size)}, and its "
                    f"encoder's have {wanted}; restore the configuration that it was saved with."
                )
        if not isinstance(module, Transformer):
            check_finite(module, name)
        before = module


def _words_of(encoder: Transformer) -> int | None:
    """Return how many words an encoder has vectors for; None where that is not said."""
    config = encoder.model.config
    if share_words(encoder):
        return getattr(config, WORDS_OF_WHOLE, None)
    return getattr(config.get_text_config(), "vocab_size", None)


def check_words(tokenizer: Any, rows: int | None, name: str | os.PathLike[str]) -> None:
    """Refuse a tokenizer with words for which a model has no vectors."""
    if rows is None or not hasattr(tokenizer, "get_vocab"):
        return
    word, number = max(tokenizer.get_vocab().items(), key=itemgetter(1), default=("", -1))
    if number >= rows:
        raise UserError(
            f"The tokenizer of {name} gives {shown(word)} the number {number}, and the model has "
            f"vectors for {rows} words, 0 to {rows - 1}; restore the tokenizer that it was saved "
            "with."
        )


def _check_room(encoder: Transformer, length: Any, what: str) -> None:
    """Refuse a length, called `what`, that leaves no room for words."""
    if length is None:
        return
    special = encoder.tokenizer.num_special_tokens_to_add() if encoder.tokenizer else 0
    if not isinstance(length, int | float) or length <= special:
        raise UserError(
            f"{what} is {shown(length)}, and {special} tokens of each text are special; expected a "
            f"number of at least {special + 1}."
        )


def check_tokenizer(tokenizer: Any, name: str | os.PathLike[str]) -> None:
    """Refuse a tokenizer that knows special tokens alone, as transformers builds it without its
    files, or has none to pad with.
    """
    # What reads images has no words.
    if hasattr(tokenizer, "get_vocab") and set(tokenizer.get_vocab()) <= set(
        tokenizer.all_special_tokens
    ):
        raise UserError(
            f"{name} lacks its tokenizer's vocabulary (tokenizer.json, vocab.txt or the like); "
            f"{_SAVE_AGAIN}."
        )
    check_pads(tokenizer, f"The tokenizer of {name}")


def check_pads(tokenizer: Any, what: str = "The tokenizer") -> None:
    """Refuse a tokenizer, called `what`, without a token to pad with."""
    if hasattr(tokenizer, "get_vocab") and tokenizer.pad_token_id is None:
        raise UserError(
            f"{what} has no padding token, so sentences of different lengths cannot form a batch; "
            "set one, e.g. tokenizer.pad_token = tokenizer.eos_token, and save the model again."
        )


def check_length(model: nn.Module, max_seq_length: int | None) -> None:
    """Refuse a length in tokens for which a model has learned no positions, or which leaves no room
    for words; None is the model's own.
    """
    for module in model.modules() if max_seq_length is not None else ():
        if isinstance(module, Transformer):
            _check_room(module, max_seq_length, "max_seq_length")
    positions = _positions(model)
    if max_seq_length is not None and positions is not None and max_seq_length > positions:
        raise UserError(
            f"A max_seq_length of {max_seq_length} is more than the {positions} tokens for which "
            f"the model has positions; give {positions} or less."
        )


def lower_length(encoder: Transformer) -> None:
    """Have an encoder cut its inputs where its positions end, if the length that it came with is
    more.
    """
    positions, length = _positions(encoder), encoder.max_seq_length
    if positions is not None and isinstance(length, int | float) and length > positions:
        encoder.max_seq_length = positions


def _positions(model: nn.Module) -> int | None:
    found = []
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa's positions begin behind that of padding.
            before = 0 if module.padding_idx is None else module.padding_idx + 1
            found.append(module.num_embeddings - before)
    return min(found, default=None)


@torch.no_grad()
def first_outputs(model: BaseModel) -> Tensor | None:
    """Return what a model gives for two short inputs of unequal length: embeddings, or scores of
    pairs. None where it is not known what it reads, or that it could be read here.
    """
    attention = {
        str(getattr(part.config, "_attn_implementation", None))
        for part in model.modules()
        if isinstance(part, PreTrainedModel)
    }
    # It needs an accelerator, to which a model may be moved later.
    is_early = model.device.type == "cpu" and any("flash" in each for each in attention)
    if not model.modalities:
        raise ValueError("sentence_bert_config.json names nothing that the model reads")
    if is_early or not model.supports("text"):
        return None
    is_cross = isinstance(model, CrossEncoder)
    given: Any = [("One.", "Two three."), ("One.", "Two.")] if is_cross else ["One.", "Two three."]
    prompt = model.prompts.get(model.default_prompt_name or "") or None
    kept = {part: part.training for part in model.modules()}
    try:
        model.eval()
        with torch.random.fork_rng(devices=()):
            features = batch_to_device(model.preprocess(given, prompt=prompt), model.device)
            found = model(features)
    finally:
        for part, training in kept.items():
            part.training = training
    return cast(Tensor, found["scores" if is_cross else "sentence_embedding"])


def is_unreadable(error: BaseException) -> bool:
    """Tell whether an error is what the libraries say of files they cannot read, not a defect or
    want of memory.
    """
    if isinstance(error, UserError | MemoryError | torch.OutOfMemoryError):
        return False
    if not isinstance(error, Exception):
        # How a library in Rust tells that it gave up; it is no Exception.
        return type(error).__name__ == "PanicException"
    if isinstance(error, OSError | ValueError | KeyError | ImportError | SafetensorError):
        return True
    # Anything can come of a configuration whose values make no sense, here where something is
    # computed with them alone.
    origin = traceback.extract_tb(error.__traceback__)[-1:]
    return not any(
        Path(frame.filename).is_relative_to(_PACKAGE)
        and Path(frame.filename).parent.name != "towers"
        and frame.name != "forward"
        for frame in origin
    )


def reason_of(error: BaseException, folder: Path) -> str:
    """Say in a few words why the libraries could not read a model: the file that is damaged, else
    what they say.
    """
    for path in sorted(path for path in (*folder.glob("*"), *folder.glob("*/*")) if path.is_file()):
        if fault := fault_of(path):
            return f"{path.relative_to(folder)} {fault}"
    if isinstance(error, UnpicklingError):
        return "its pickled weights are damaged, or more than weights, which is not read"
    told = said_by(error)
    return f"{_settings_named(told, folder)}{told}"


def said_by(error: BaseException) -> str:
    """Return what an error says, on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _settings_named(told: str, folder: Path) -> str:
    """Name the file and the keys that a library's message speaks of, as far as one can tell: by
    their names in it, else by their values.
    """
    said = set(re.findall(r"[\w.+-]*\w", told))
    for path in (folder / "config.json", *sorted(folder.glob("*config.json"))):
        if not path.is_file():
            continue
        settings = dict(_values(json.loads(path.read_text(encoding="utf-8"))))
        named = [key for key in settings if key in said]
        valued = [key for key, value in settings.items() if value and str(value) in said]
        # Of several keys of one value, those with most words in common.
        shared = {key: len(said & set(key.split("_"))) for key in valued}
        found = named or [key for key in valued if shared[key] == max(shared.values())]
        if 0 < len(found) <= _FEW:
            return f"{path.name}: {', '.join(found)}: "
    return ""


def _values(settings: Any) -> Iterator[tuple[str, Any]]:
    """Yield the texts and numbers of settings, also of those inside them, by their keys."""
    for key, value in settings.items() if isinstance(settings, dict) else ():
        yield from _values(value)
        if isinstance(value, str | int | float):
            yield key, value


def fault_of(path: Path) -> str | None:
    """Say what is wrong with one of a model's files, as far as the file alone tells it; None if
    nothing is.
    """
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                for name in file.keys():
                    if not _is_finite(file.get_tensor(name)):
                        return f"holds the weight {name!r}, which is not finite"
        if path.suffix == ".bin" and not path.stat().st_size:
            return "is empty"
        if path.suffix == ".json":
            kind, wanted = (list, "list") if path.name == "modules.json" else (dict, "object")
            if not isinstance(json.loads(path.read_text(encoding="utf-8")), kind):
                return f"is not a JSON {wanted}"
    except (SafetensorError, OSError):
        return "is damaged or not whole"
    except (ValueError, RecursionError):
        return "is not JSON"
    return None
