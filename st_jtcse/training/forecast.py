"""What a run will take, and whose data it reads: told before it begins."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from st_jtcse import bundled
from st_jtcse.recipe.ability import used
from st_jtcse.recipe.blocks import DEV, SourceSpec
from st_jtcse.recipe.data_blocks import DevSpec
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.stage_arguments import bf16_gain, training_arguments
from st_jtcse.training.stage_inputs import Inputs

# Bytes of a weight in training: itself, its gradient, and the optimizer's two averages; and in a
# checkpoint.
TRAINED, KEPT, SAVED = 16, 12, 4


def rows_of(stage: StageSpec, inputs: Inputs | None) -> int | None:
    """Return how many rows a stage trains on; None where they are not read."""
    if inputs is None or inputs.sentences is None:
        return None
    return counts_of(stage, len(inputs.sentences.dataset))[-1]


def counts_of(stage: StageSpec, rows: int) -> list[int]:
    """Return how many rows there are, at first and after each of a stage's abilities."""
    counts = [rows]
    for ability in used(stage):
        counts.append(ability.expected_rows(stage, counts[-1]))
    return counts


def steps_of(stage: StageSpec, rows: int | None, processes: int = 1) -> int | None:
    """Return how many optimizer steps a stage takes in so many processes; None where they follow
    from an unknown number of rows.
    """
    if stage.loss is None:
        return 0
    arguments = training_arguments(stage, 0, Path(stage.name))
    if arguments.max_steps > 0:
        return int(arguments.max_steps)
    if rows is None:
        return None
    # Sentence-Transformers keeps a last, smaller batch unless told to drop it; of several processes
    # all must have one.
    batches = rows / arguments.train_batch_size / processes
    drops = arguments.dataloader_drop_last or processes > 1
    batches = math.floor(batches) if drops else math.ceil(batches)
    return math.ceil(batches / arguments.gradient_accumulation_steps * arguments.num_train_epochs)


def told_ahead(
    loaded: LoadedRecipe,
    names: Sequence[str],
    inputs: Mapping[str, Inputs],
    seconds: Mapping[str, float],
) -> list[str]:
    """Return lines about the data, by what they are for, and the time; `seconds` are those of a
    step by stage.
    """
    stages = [stage for stage in loaded.stages if stage.name in names and stage.loss is not None]
    found: dict[str, None] = {}
    for stage in stages:
        train = stage.data.sources if stage.data else []
        found |= dict.fromkeys(f"train: {_origin(source)}" for source in train)
        dev = stage.evaluate.sets.get(DEV) if stage.evaluate else None
        found |= dict.fromkeys([f"dev: {_origin(dev)}"] if dev is not None else [])
    steps = {
        stage.name: steps_of(stage, rows_of(stage, inputs.get(stage.name))) for stage in stages
    }
    whole = sum(each * (steps[name] or 0) for name, each in seconds.items() if name in steps)
    untimed = [name for name in steps if name not in seconds]
    lines = list(found)
    if whole:
        but = f", without {', '.join(untimed)}" if untimed else ""
        told = f"training takes about {duration(whole)} on this machine{but}"
        lines.append(f"{told}; evaluations and teachers' vectors come on top")
    if any(stage.args.get("bf16") is True for stage in stages) and (gain := bf16_gain()):
        lines.append(gain)
    return lines


def sizes(parameters: Sequence[int], folder: Path) -> str:
    """Say what memory and disk stages of so many parameters take."""
    place = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    after, largest = SAVED * sum(parameters), max(parameters)
    # While the next checkpoint is written the last and the best are still there.
    figures = (
        TRAINED * largest,
        after + 3 * KEPT * largest,
        after,
        shutil.disk_usage(place).free,
    )
    trained, most, kept, free = (f"{figure / 1e9:.1f} GB" for figure in figures)
    return (
        f"memory: {trained} for weights, gradients and optimizer, the batch comes on top; disk: up "
        f"to {most}, {kept} afterwards ({free} free)"
    )


def _origin(source: SourceSpec) -> str:
    """Say where rows come from, and whose they are."""
    if isinstance(source, DevSpec) and source.origin is not None:
        return source.origin
    if source.dataset is not None:
        return source.dataset
    own, ours = Path(str(source.file)).absolute(), bundled.folder("recipes").absolute()
    return (
        f"{own.relative_to(ours)} (bundled, not yours)"
        if own.is_relative_to(ours)
        else f"{source.file} (yours)"
    )


def duration(seconds: float) -> str:
    """Say how long something takes."""
    minutes = round(seconds / 60)
    if minutes <= 1:
        return "a minute"
    return f"{minutes} minutes" if minutes < 100 else f"{round(minutes / 60)} hours"
