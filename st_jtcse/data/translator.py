"""One direction of translation: a frozen sequence-to-sequence model, its tokenizer and its search, without sampling."""

from __future__ import annotations

import hashlib
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerBase,
)

from st_jtcse.errors import UserError
from st_jtcse.hashing import weights_sha256

# What a checkpoint says of its tokens. Its search (Marian's beams, BART's lengths) is ours to choose, and an end forced
# at the last token (Marian, BART) would hide that a translation did not fit.
_TOKENS = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id", "forced_bos_token_id")
_FORBIDDEN = ("bad_words_ids", "renormalize_logits")
# The tokenizer's settings that say where it was loaded from.
_ORIGIN = ("name_or_path", "is_local", "local_files_only")


class Translation(NamedTuple):
    """A translated sentence, and whether it or its source was too long and is cut."""

    text: str
    over_long: bool


class Translator:
    """Translates sentences with one model, by greedy or beam search.

    Args:
        name: Folder or Hub id, ``id@revision`` for another revision than main. Only safetensors are read.
        prefix: Text put before every sentence, e.g. ``">>cmn_Hans<< "`` or ``"translate English to French: "``.
        beam_size: Beams; 1 is greedy search.
        max_length: Tokens a translation has at most.
        batch_size: Sentences a forward pass.
        bf16: Whether the model computes in bfloat16 instead of float32.

    Raises:
        UserError: The model cannot be loaded, is not a sequence-to-sequence model, has fewer positions than
            `max_length`, or translates into several languages and the prefix names none.
    """

    def __init__(
        self, name: str, prefix: str, *, beam_size: int, max_length: int, batch_size: int, bf16: bool = False
    ) -> None:
        self.name = name
        self.prefix = prefix
        self.batch_size = batch_size
        self.model, self.tokenizer = _load(name, torch.bfloat16 if bf16 else torch.float32)
        positions = getattr(self.model.config, "max_position_embeddings", None)
        if positions is not None and max_length > positions:
            raise UserError(
                f"The translation model {name!r} has {positions} positions, fewer than a max_length of {max_length}; "
                "lower max_length."
            )
        # A tokenizer without a limit has a very large number.
        limits = [limit for limit in (self.tokenizer.model_max_length, positions) if limit and limit < 10**9]
        self.source_limit = min(limits, default=None)
        self._check_target()
        # On the model, because transformers fills what is None in a configuration given to generate from the model's.
        self.model.generation_config = _search(self.model.generation_config, beam_size, max_length)

    @property
    def source(self) -> str | None:
        """Language it translates from, where the tokenizer says so, as Marian's does."""
        return getattr(self.tokenizer, "source_lang", None)

    @property
    def target(self) -> str | None:
        """Language it translates to, where the tokenizer says so."""
        return getattr(self.tokenizer, "target_lang", None)

    def fingerprint(self) -> str:
        """Hash all that decides a translation: weights, configuration, vocabulary, search and prefix."""
        digest = hashlib.sha256(weights_sha256(self.model).encode())
        search = self.model.generation_config.to_dict()
        for settings in (self.model.config.to_dict(), search, {"prefix": self.prefix, "limit": self.source_limit}):
            settings = {key: settings[key] for key in settings if key not in ("_name_or_path", "transformers_version")}
            digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
        # As files: what decides the tokens differs between kinds of tokenizers, but all of it is saved.
        with tempfile.TemporaryDirectory() as folder:
            self.tokenizer.save_pretrained(folder)
            for path in sorted(Path(folder).iterdir()):
                content = path.read_bytes()
                if path.name == "tokenizer_config.json":
                    settings = {key: value for key, value in json.loads(content).items() if key not in _ORIGIN}
                    content = json.dumps(settings, sort_keys=True).encode()
                digest.update(path.name.encode() + hashlib.sha256(content).digest())
        return digest.hexdigest()

    @torch.inference_mode()
    def translate(self, texts: list[str]) -> list[Translation]:
        """Translate sentences.

        Args:
            texts: The sentences.

        Returns:
            One translation a sentence, in their order. Its text is empty where the model only ended the sequence.
        """
        if not texts:
            return []
        # Only here: where every shard is in the cache, the accelerator is not touched.
        self.model.to(_device())
        texts = [self.prefix + text for text in texts]
        lengths = [len(ids) for ids in self.tokenizer(texts, verbose=False)["input_ids"]]
        # Longest first: little padding, and memory runs out at once or not at all.
        order = sorted(range(len(texts)), key=lambda row: -lengths[row])
        found: dict[int, Translation] = {}
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            for row, (text, ended) in zip(rows, self._generate([texts[row] for row in rows])):
                is_cut = self.source_limit is not None and lengths[row] > self.source_limit
                found[row] = Translation(text, is_cut or not ended)
        return [found[row] for row in range(len(texts))]

    def _generate(self, texts: list[str]) -> list[tuple[str, bool]]:
        cut = {} if self.source_limit is None else {"truncation": True, "max_length": self.source_limit}
        inputs = self.tokenizer(texts, padding=True, return_tensors="pt", **cut).to(self.model.device)
        ids = self.model.generate(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        # The first token starts the decoder; in some models it is the one that ends the sequence too.
        ids = ids[:, 1:]
        ends = torch.tensor(self.model.generation_config.eos_token_id, device=ids.device)
        ended = torch.isin(ids, ends).any(dim=1)
        texts = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return [(text.strip(), end) for text, end in zip(texts, ended.tolist())]

    def _check_target(self) -> None:
        codes = getattr(self.tokenizer, "supported_language_codes", [])
        if len(codes) > 1 and not self.prefix.startswith(tuple(codes)):
            raise UserError(
                f"The translation model {self.name!r} translates into several languages ({', '.join(codes[:8])}); name "
                "one at the start of the prefix."
            )


def _load(name: str, dtype: torch.dtype) -> tuple[Any, PreTrainedTokenizerBase]:
    path, revision = (name, None) if Path(name).is_dir() else _split(name)
    try:
        config = AutoConfig.from_pretrained(path, revision=revision)
        if not config.is_encoder_decoder:
            raise UserError(
                f"The translation model {name!r} is no sequence-to-sequence model but of type {config.model_type}; "
                "give one like Helsinki-NLP/opus-mt-en-fr."
            )
        with warnings.catch_warnings():
            # Its normaliser is built but never used: MarianTokenizer does not call it.
            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, revision=revision)
        model, loaded = AutoModelForSeq2SeqLM.from_pretrained(
            path, revision=revision, use_safetensors=True, dtype=dtype, output_loading_info=True
        )
    except ImportError as error:
        raise UserError(
            f"The tokenizer of the translation model {name!r} needs a package that is not installed "
            f"({' '.join(str(error).split())[:120]}); pip install 'st-jtcse[translation]'."
        ) from error
    except UserError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(
            f"The translation model {name!r} cannot be loaded ({' '.join(str(error).split())[:200]}); check the name, "
            "give a local folder, or, where its weights are pickled only, name a revision that holds safetensors: "
            f"'{path}@refs/pr/N'."
        ) from error
    # They would be drawn at random.
    if loaded["missing_keys"]:
        raise UserError(
            f"The translation model {name!r} is incomplete: its weights lack {min(loaded['missing_keys'])}; save it "
            "with its language modelling head."
        )
    return model.eval(), tokenizer


def _split(name: str) -> tuple[str, str | None]:
    path, _, revision = name.partition("@")
    return path, revision or None


def _search(checkpoint: GenerationConfig, beam_size: int, max_length: int) -> GenerationConfig:
    kept = {key: getattr(checkpoint, key, None) for key in _TOKENS + _FORBIDDEN}
    return GenerationConfig(**kept, do_sample=False, num_beams=beam_size, max_new_tokens=max_length)


def _device() -> torch.device:
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None:
        return torch.device("cpu")
    return torch.device(accelerator.type, dist.get_node_local_rank(fallback_rank=0))
