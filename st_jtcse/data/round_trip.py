"""Round-trip translation as a data step: English, a pivot language, and English again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from st_jtcse.data.shards import Job, cached_columns
from st_jtcse.data.translator import Translation, Translator
from st_jtcse.errors import UserError

Mode = Literal["replace", "pair"]


@dataclass(frozen=True)
class Pivot:
    """A language to translate to and back from."""

    name: str  # in the counts, e.g. "fr"
    forward: str  # model from English to it: a folder, a Hub id, or `id@revision`
    back: str  # model from it to English
    forward_prefix: str = ""  # text that the first model needs before every sentence, e.g. ">>cmn_Hans<< "
    back_prefix: str = ""  # text that the second model needs


@dataclass(frozen=True)
class RoundTrip:
    """Round trips of all sentences through all pivots."""

    dataset: Dataset  # what to train on
    # By the pivot's name: all `sentences`; round trips that are `empty` (left out of the dataset), `over_long` (a
    # source beyond what a model takes, or a translation that did not end within `max_length` tokens) and `identical`
    # to the sentence (both kept).
    counts: dict[str, dict[str, int]]


def round_trip(
    sentences: Dataset,
    sentences_sha256: str,
    pivots: Sequence[Pivot],
    mode: Mode,
    cache_dir: Path,
    *,
    beam_size: int = 1,
    max_length: int = 128,
    batch_size: int = 64,
    bf16: bool = False,
    shard_size: int = 1_000,
) -> RoundTrip:
    """Translate sentences to each pivot language and back; an empty round trip cannot be trained on and is left out.

    Mode ``"replace"`` gives the round trips as the one column ``sentence``, as EDFSE and TNCSE train; ``"pair"`` gives
    the columns ``sentence`` and ``round_trip``, two views. Pivots follow one another, each with a file in `cache_dir`.
    """
    names = [pivot.name for pivot in pivots]
    if not names:
        raise UserError("Expected at least one pivot language, found none; give a pivot.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"The pivot {twice[0]!r} is given twice; remove one, or give it another name.")
    search = {"beam_size": beam_size, "max_length": max_length, "batch_size": batch_size, "bf16": bf16}
    texts = sentences.with_format("arrow")[:].column("sentence")
    tables: list[pa.Table] = []
    counts: dict[str, dict[str, int]] = {}
    for pivot in pivots:
        # The models are freed at its return, before the next two are loaded.
        columns = _columns(pivot, search, sentences, sentences_sha256, shard_size, cache_dir)
        table = columns.with_format("arrow")[:]
        trips = table.column("round_trip")
        kept = pc.not_equal(trips, "")
        counts[pivot.name] = {
            "sentences": len(table),
            "empty": len(table) - pc.sum(kept).as_py(),
            "over_long": pc.sum(table.column("over_long")).as_py(),
            "identical": pc.sum(pc.equal(trips, texts)).as_py(),
        }
        views = {"sentence": trips} if mode == "replace" else {"sentence": texts, "round_trip": trips}
        tables.append(pa.table(views).filter(kept))
    joined = pa.concat_tables(tables)
    if not len(joined):
        raise UserError("Every round trip is empty; check that the translation models are trained ones.")
    return RoundTrip(Dataset(joined), counts)


def _columns(
    pivot: Pivot, search: dict[str, Any], sentences: Dataset, sentences_sha256: str, shard_size: int, cache_dir: Path
) -> Dataset:
    forward = Translator(pivot.forward, pivot.forward_prefix, **search)
    back = Translator(pivot.back, pivot.back_prefix, **search)
    _check_languages(pivot, forward, back)

    def compute(texts: list[str]) -> pa.Table:
        there = forward.translate(texts)
        # From nothing, a model would make up a sentence.
        returned = iter(back.translate([translation.text for translation in there if translation.text]))
        trips = [next(returned) if translation.text else Translation("", False) for translation in there]
        return pa.table(
            {
                "round_trip": [trip.text for trip in trips],
                "over_long": [one.over_long or two.over_long for one, two in zip(there, trips)],
            }
        )

    models = {"forward": forward.fingerprint(), "back": back.fingerprint()}
    job = Job("translation", {"sentences": sentences_sha256, **models, **search}, sentences, compute, shard_size)
    return cached_columns(job, cache_dir)


def _check_languages(pivot: Pivot, forward: Translator, back: Translator) -> None:
    for there, here in ((forward.target, back.source), (forward.source, back.target)):
        # Two letters and three name one language in two ways ("fr" and "fra"), which are not compared.
        if there and here and there != here and len(there) == len(here):
            raise UserError(
                f"The models of the pivot {pivot.name!r} do not match: {pivot.forward!r} translates {forward.source} "
                f"to {forward.target}, {pivot.back!r} {back.source} to {back.target}; give a pair that goes there and "
                "back."
            )
