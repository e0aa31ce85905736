"""A frozen model that writes text: how it is loaded, told from others, and asked."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from sentence_transformers.util import get_device_name
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedTokenizerBase,
)

from st_jtcse.errors import UserError, short_of_memory
from st_jtcse.modules.model_folders import check_files
from st_jtcse.modules.whole_models import (
    check_tokenizer,
    check_words,
    is_unreadable,
    loading_whole,
    reason_of,
    said_by,
)

_Written = TypeVar("_Written")


class _Kind(NamedTuple):
    """A kind of models that write text."""

    told: str
    example: str
    models: Any


_TRANSLATING = _Kind("sequence-to-sequence", "Helsinki-NLP/opus-mt-en-fr", AutoModelForSeq2SeqLM)
_ANSWERING = _Kind("text-generation", "HuggingFaceTB/SmolLM2-135M-Instruct", AutoModelForCausalLM)


class FrozenGenerator:
    """A sequence-to-sequence model that translates, or a causal one, and its tokenizer.

    Its name is a folder, a Hub id or ``id@revision``; UserError where it cannot be loaded, as
    safetensors and whole.
    """

    def __init__(
        self, name: str, *, translates: bool, batch_size: int, bf16: bool, **tokenizer_settings: Any
    ) -> None:
        self.name = name
        self.batch_size = batch_size
        path, _, branch = (name, "", "") if Path(name).is_dir() else name.partition("@")
        # Said, not left out: transformers would otherwise ask on the terminal whether to run the
        # folder's code.
        source: dict[str, Any] = {"revision": branch or None, "trust_remote_code": False}
        kind = _TRANSLATING if translates else _ANSWERING
        with _loading(name, path, kind):
            if Path(path).is_dir():
                check_files(Path(path))
            config = AutoConfig.from_pretrained(path, **source)
            if bool(config.is_encoder_decoder) != translates:
                raise UserError(
                    f"The model {name!r} is not a {kind.told} model but of type "
                    f"{config.model_type}; give one like {kind.example}."
                )
            with warnings.catch_warnings():
                # Marian's normaliser is built but never used: MarianTokenizer does not call it.
                warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
                self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                    path, **source, **tokenizer_settings
                )
            check_tokenizer(self.tokenizer, name)
            source["dtype"] = torch.bfloat16 if bf16 else torch.float32
            with loading_whole():
                found = kind.models.from_pretrained(
                    path, **source, use_safetensors=True, output_loading_info=True
                )
        self.model, loaded = found[0].eval(), found[1]
        check_words(self.tokenizer, getattr(config, "vocab_size", None), name)
        # They would be drawn at random.
        if loaded["missing_keys"]:
            raise UserError(
                f"The model {name!r} is incomplete: its weights lack "
                f"{min(loaded['missing_keys'])}; save it with its language modelling head."
            )

    def longest_first(
        self, lengths: Sequence[int], write: Callable[[list[int]], Iterable[_Written]]
    ) -> list[_Written]:
        """Return what `write` gives for each text by its row: little padding, and memory runs out
        at once or never.
        """
        # Only here: where every answer is in the cache, the accelerator is not touched.
        self.model.to(get_device_name())
        order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
        found: dict[int, _Written] = {}
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            with self._writing():
                found.update(zip(rows, write(rows)))
        return [found[row] for row in range(len(lengths))]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Tell in one sentence what the libraries refuse of a model only as it writes."""
        try:
            yield
        except BaseException as error:
            if short_of_memory(error) or not is_unreadable(error):
                raise
            raise UserError(
                f"The model {self.name!r} cannot write a text ({said_by(error)[:200]}); restore "
                "the configuration that it was saved with."
            ) from error


@contextmanager
def _loading(name: str, path: str, kind: _Kind) -> Iterator[None]:
    """Tell in one sentence why a model of a kind cannot be loaded."""
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"The tokenizer of the model {name!r} needs a package that is not installed "
            f"({' '.join(str(error).split())[:120]}); pip install 'st-jtcse[translation]'."
        ) from error
    except BaseException as error:
        if not is_unreadable(error):
            raise
        raise UserError(
            f"The model {name!r} cannot be loaded as a {kind.told} model "
            f"({reason_of(error, Path(path))[:200]}); check the name, give a local folder, or, "
            "where its weights are pickled only, name a revision that holds safetensors: "
            f"'{path}@refs/pr/N'."
        ) from error


def settings_text(settings: dict[str, Any]) -> str:
    """Write a configuration as JSON, without what says where and by what it was saved."""
    kept = {
        key: settings[key]
        for key in settings
        if key not in ("_name_or_path", "transformers_version")
    }
    return json.dumps(kept, sort_keys=True, default=str)
