"""A few rows of a stage's data, in the form in which its loss takes them all."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, Image, concatenate_datasets

from st_jtcse import data
from st_jtcse.data.labelled import COLUMNS
from st_jtcse.recipe.data_blocks import DEV
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.stage_inputs import Inputs

ROWS = 4


def few_inputs(
    stage: StageSpec, inputs: Inputs | None, label_size: int | None, count: int = ROWS, *, images: bool = False
) -> Inputs:
    """Return inputs of `count` rows: the first, of two classes where there are; four made up where none are read.

    Teachers' vectors of this size, and round trips, are made up too; so is the set that chooses checkpoints. `images`
    says that the model reads no text.
    """
    read = None if inputs is None else inputs.sentences
    rows = _made_up(stage, images) if read is None else _first(read.dataset, count)
    if stage.augment is not None and stage.augment.mode == "pair":
        rows = rows.add_column("round_trip", rows["sentence"][::-1])
    if any(view.type == "neighbour" for view in stage.views or ()):
        rows = rows.add_column("neighbour", rows["sentence"][::-1])
    if label_size is not None:
        vectors = np.random.default_rng(0).normal(size=(len(rows), label_size)) / label_size**0.5
        labels = pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float16).ravel()), label_size)
        rows = concatenate_datasets([rows, Dataset(pa.table({"label": labels}))], axis=1)
    texts = rows[rows.column_names[0]][:ROWS]
    if isinstance(texts[0], str):
        texts = [f"{text} {number}" for number, text in enumerate(texts)]
    graded = data.Pairs(texts, texts[::-1], [float(number) for number in range(len(texts))], "")
    # Labelled: rows that are complete as they are.
    return replace(
        inputs or Inputs(None, {}, {}),
        sentences=data.Labelled(rows, 0, "", {}),
        evaluators={DEV: kind_of(stage.model).evaluator(DEV, graded)},
    )


def _first(dataset: Dataset, count: int) -> Dataset:
    if "label" not in dataset.column_names:
        return dataset.select(range(min(count, len(dataset))))
    # Two of each of two labels, for losses that compare rows of one class with those of another.
    found: dict[Any, list[int]] = {}
    for number, label in enumerate(islice(dataset["label"], 10_000)):
        if (label in found or len(found) < 2) and len(rows := found.setdefault(label, [])) < ROWS // 2:
            rows.append(number)
        if sum(map(len, found.values())) == ROWS:
            break
    chosen = {number for rows in found.values() for number in rows}
    others = (number for number in range(len(dataset)) if number not in chosen)
    return dataset.select(sorted([*chosen, *islice(others, count - len(chosen))]))


def _made_up(stage: StageSpec, images: bool) -> Dataset:
    if images:
        noise = np.random.default_rng(0).integers(0, 256, (ROWS, 32, 32, 3), np.uint8)
        return Dataset.from_dict({"sentence": [*noise]}, Features({"sentence": Image()}))
    texts = [f"{'one two' if number % 2 else 'three four'} {number}" for number in range(ROWS)]
    if stage.data is None or stage.data.pairs is None:
        return Dataset(pa.table({"sentence": texts}))
    kind = stage.data.labels
    names = stage.data.pairs[0].columns or COLUMNS["scores" if stage.data.bins else kind]
    count = len(names) - (kind != "none")
    columns: dict[str, Any] = {f"sentence{number}": texts[number:] + texts[:number] for number in range(1, count + 1)}
    if kind == "scores":
        columns["label"] = pa.array([0.0, 0.25, 0.5, 1.0], pa.float32())
    elif kind == "classes":
        columns["label"] = pa.array([0, 1, 0, 1], pa.int64())
    return Dataset(pa.table(columns))
