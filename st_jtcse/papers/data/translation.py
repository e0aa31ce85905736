"""Round-trip translation as a data step: English, a pivot language, and English again, without
sampling.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset
from transformers import GenerationConfig

from st_jtcse.data.shards import Computation, all_of, cached_columns
from st_jtcse.errors import UserError
from st_jtcse.hashing import weights_sha256
from st_jtcse.papers.data.frozen_generator import FrozenGenerator, settings_text

# What a checkpoint says of its tokens. Its search (Marian's beams, BART's lengths) is ours to
# choose, and an end forced at the last token (Marian, BART) would hide that a translation did not
# fit.
_TOKENS = (
    "decoder_start_token_id",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "forced_bos_token_id",
)
_FORBIDDEN = ("bad_words_ids", "renormalize_logits")
# The tokenizer's settings that say where it was loaded from.
_ORIGIN = ("name_or_path", "is_local", "local_files_only")


class Translation(NamedTuple):
    """A translated sentence, and whether it or its source was too long and is cut."""

    text: str
    over_long: bool


class Translator(FrozenGenerator):
    """Translates sentences with one model, by beam search, or greedily where `beam_size` is 1.

    The prefix comes before every sentence, e.g. ``">>cmn_Hans<< "``; a translation has at most
    `max_length` tokens.
    """

    def __init__(
        self,
        name: str,
        prefix: str,
        *,
        beam_size: int,
        max_length: int,
        batch_size: int,
        bf16: bool = False,
    ) -> None:
        super().__init__(name, translates=True, batch_size=batch_size, bf16=bf16)
        self.prefix = prefix
        #: Language it translates from and to, where the tokenizer says so, as Marian's does.
        self.source: str | None = getattr(self.tokenizer, "source_lang", None)
        self.target: str | None = getattr(self.tokenizer, "target_lang", None)
        positions = getattr(self.model.config, "max_position_embeddings", None)
        self._check(max_length, positions)
        # A tokenizer without a limit has a very large number.
        limits = [self.tokenizer.model_max_length, positions]
        self.source_limit = min((one for one in limits if one and one < 10**9), default=None)
        generation = self.model.generation_config
        kept = {key: getattr(generation, key, None) for key in _TOKENS + _FORBIDDEN}
        # On the model, because transformers fills what is None in a configuration given to generate
        # from the model's.
        self.model.generation_config = GenerationConfig(
            **kept, do_sample=False, num_beams=beam_size, max_new_tokens=max_length
        )

    def _check(self, max_length: int, positions: int | None) -> None:
        """Refuse lengths that the model has no positions for, and a prefix without a language."""
        if positions is not None and max_length > positions:
            raise UserError(
                f"The translation model {self.name!r} has {positions} positions, fewer than a "
                f"max_length of {max_length}; lower max_length."
            )
        codes = getattr(self.tokenizer, "supported_language_codes", [])
        if len(codes) > 1 and not self.prefix.startswith(tuple(codes)):
            raise UserError(
                f"The translation model {self.name!r} translates into several languages "
                f"({', '.join(codes[:8])}); name one at the start of the prefix."
            )

    def fingerprint(self) -> str:
        """Hash all that decides a translation: weights, configuration, vocabulary, search and
        prefix.
        """
        digest = hashlib.sha256(weights_sha256(self.model).encode())
        search = self.model.generation_config.to_dict()
        for settings in (
            self.model.config.to_dict(),
            search,
            {"prefix": self.prefix, "limit": self.source_limit},
        ):
            digest.update(settings_text(settings).encode())
        # As files: what decides the tokens differs between kinds of tokenizers, but all of it is
        # saved.
        with tempfile.TemporaryDirectory() as folder:
            self.tokenizer.save_pretrained(folder)
            for path in sorted(Path(folder).iterdir()):
                content = path.read_bytes()
                if path.name == "tokenizer_config.json":
                    settings = {
                        key: value
                        for key, value in json.loads(content).items()
                        if key not in _ORIGIN
                    }
                    content = json.dumps(settings, sort_keys=True).encode()
                digest.update(path.name.encode() + hashlib.sha256(content).digest())
        return digest.hexdigest()

    @torch.inference_mode()
    def translate(self, texts: list[str]) -> list[Translation]:
        """Return one translation a sentence; its text is empty where the model only ended the
        sequence.
        """
        if not texts:
            return []
        texts = [self.prefix + text for text in texts]
        lengths = [len(ids) for ids in self.tokenizer(texts, verbose=False)["input_ids"]]
        limit = self.source_limit
        cut = {} if limit is None else {"truncation": True, "max_length": limit}

        def write(rows: list[int]) -> list[Translation]:
            batch = [texts[row] for row in rows]
            inputs = self.tokenizer(batch, padding=True, return_tensors="pt", **cut).to(
                self.model.device
            )
            ids = self.model.generate(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
            )
            # The first token starts the decoder; in some models it is the one that ends the
            # sequence too.
            ids = ids[:, 1:]
            ends = torch.tensor(self.model.generation_config.eos_token_id, device=ids.device)
            ended = torch.isin(ids, ends).any(dim=1).tolist()
            over_long = [
                not end or (limit is not None and lengths[row] > limit)
                for row, end in zip(rows, ended)
            ]
            written = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
            return [Translation(text.strip(), long) for text, long in zip(written, over_long)]

        return self.longest_first(lengths, write)


@dataclass(frozen=True)
class Pivot:
    """A language to translate to and back from."""

    name: str  # in the counts, e.g. "fr"
    forward: str  # model from English to it: a folder, a Hub id, or `id@revision`
    back: str  # model from it to English
    forward_prefix: str = (
        ""  # text that the first model needs before every sentence, e.g. ">>cmn_Hans<< "
    )
    back_prefix: str = ""  # text that the second model needs


@dataclass(frozen=True)
class RoundTrip:
    """Round trips of all sentences through all pivots."""

    dataset: Dataset  # what to train on
    # By the pivot's name: all `sentences`; round trips that are `empty` (left out of the dataset),
    # `over_long` (a source beyond what a model takes, or a translation that did not end within
    # `max_length` tokens) and `identical` to the sentence (both kept).
    counts: dict[str, dict[str, int]]


def round_trip(
    sentences: Dataset,
    sentences_sha256: str,
    pivots: Sequence[Pivot],
    mode: Literal["replace", "add", "pair"],
    cache_dir: Path,
    *,
    beam_size: int = 1,
    max_length: int = 128,
    batch_size: int = 64,
    bf16: bool = False,
    shard_size: int = 1_000,
) -> RoundTrip:
    """Translate sentences to each pivot language and back; an empty round trip cannot be trained on
    and is left out.

    Mode ``"replace"`` gives the round trips as the one column ``sentence``, as EDFSE and TNCSE
    train; ``"add"`` the sentences themselves and then those, a text that is expanded; ``"pair"``
    the columns ``sentence`` and ``round_trip``, two views. Each pivot has a file in `cache_dir`.
    """
    _check_names([pivot.name for pivot in pivots])
    search = dict(beam_size=beam_size, max_length=max_length, batch_size=batch_size, bf16=bf16)
    texts = sentences.with_format("arrow")[:].column("sentence")
    tables: list[pa.Table] = []
    counts: dict[str, dict[str, int]] = {}
    own = (search, sentences, sentences_sha256, shard_size, cache_dir)
    # The models of a pivot are freed before those of the next are loaded.
    found = all_of(partial(_columns, pivot, *own) for pivot in pivots)
    for pivot, columns in zip(pivots, found):
        trips = columns.with_format("arrow")[:]
        counts[pivot.name] = _counts(trips, texts)
        tables.append(_views(trips, texts, mode))
    joined = pa.concat_tables(tables)
    if not len(joined):
        raise UserError(
            "Every round trip is empty; check that the translation models are trained ones."
        )
    if mode == "add":
        joined = pa.concat_tables([pa.table({"sentence": texts}), joined])
    return RoundTrip(Dataset(joined), counts)


def _views(trips: pa.Table, texts: pa.ChunkedArray, mode: str) -> pa.Table:
    """Return one pivot's round trips as rows to train on, without empty ones."""
    returned = trips.column("round_trip")
    views = {"sentence": returned}
    if mode == "pair":
        views = {"sentence": texts, "round_trip": returned}
    return pa.table(views).filter(pc.not_equal(returned, ""))


def _check_names(names: list[str]) -> None:
    if not names:
        raise UserError("Expected at least one pivot language, found none; give a pivot.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(
            f"The pivot {twice[0]!r} is given twice; remove one, or give it another name."
        )


def _counts(trips: pa.Table, texts: pa.ChunkedArray) -> dict[str, int]:
    """Return what is told of one pivot's round trips, see :class:`RoundTrip`."""
    returned = trips.column("round_trip")
    return {
        "sentences": len(trips),
        "empty": pc.sum(pc.equal(returned, "")).as_py(),
        "over_long": pc.sum(trips.column("over_long")).as_py(),
        "identical": pc.sum(pc.equal(returned, texts)).as_py(),
    }


def _columns(
    pivot: Pivot,
    search: dict[str, Any],
    sentences: Dataset,
    sentences_sha256: str,
    shard_size: int,
    cache_dir: Path,
) -> Dataset:
    forward = Translator(pivot.forward, pivot.forward_prefix, **search)
    back = Translator(pivot.back, pivot.back_prefix, **search)
    for there, here in ((forward.target, back.source), (forward.source, back.target)):
        # Two letters and three name one language in two ways ("fr" and "fra"), which are not
        # compared.
        if there and here and there != here and len(there) == len(here):
            raise UserError(
                f"The models of the pivot {pivot.name!r} do not match: {pivot.forward!r} "
                f"translates {forward.source} to {forward.target}, {pivot.back!r} {back.source} to "
                f"{back.target}; give a pair that goes there and back."
            )

    def compute(texts: list[str]) -> pa.Table:
        out = forward.translate(texts)
        trips = [Translation("", False)] * len(out)
        # From nothing, a model would make up a sentence.
        kept = [row for row, translation in enumerate(out) if translation.text]
        for row, returned in zip(kept, back.translate([out[row].text for row in kept])):
            trips[row] = returned
        over_long = [one.over_long or two.over_long for one, two in zip(out, trips)]
        return pa.table({"round_trip": [trip.text for trip in trips], "over_long": over_long})

    models = {"forward": forward.fingerprint(), "back": back.fingerprint()}
    job = Computation(
        "translation",
        {"sentences": sentences_sha256, **models, **search},
        sentences,
        compute,
        shard_size,
    )
    return cached_columns(job, cache_dir)
