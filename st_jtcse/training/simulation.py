"""What a run of another size will take: each part's formula, with rates that are given or measured
here on the recipe's own models and batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from st_jtcse import data, processes
from st_jtcse.data.sentences import held_count, is_converted
from st_jtcse.errors import UserError
from st_jtcse.recipe.ability import Ability, used
from st_jtcse.recipe.blocks import DEV
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.scale import Demand, Scale
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.at_scale import Part, Simulation, StageAtScale
from st_jtcse.training.forecast import KEPT, SAVED, TRAINED, steps_of
from st_jtcse.training.job import Job
from st_jtcse.training.plan import parameters_of
from st_jtcse.training.rates import memory, texts_a_second
from st_jtcse.training.rehearsal import needed, untouched
from st_jtcse.training.row_order import PLACE
from st_jtcse.training.small_run import SmallRun, WholeRun
from st_jtcse.training.stage_arguments import most_checkpoints, training_arguments
from st_jtcse.training.stage_inputs import is_local, load_inputs

# A gradient's bytes, and how often sets are scored beside the training: start, end, as shipped.
_GRADIENT, _SCORED = 4, 3


def simulate(loaded: LoadedRecipe, names: Sequence[str], scale: Scale) -> Simulation:
    """Return what stages take at a scale.

    Rates that are not given are measured on what the recipe names: its models, a few of its batches
    and texts.

    Raises:
        UserError: A rate names no stage, or several processes are at work.
    """
    began = time.process_time()
    _check(loaded, names, scale)
    stages = {stage.name: stage for stage in loaded.stages}
    local = [stages[name] for name in names if is_local(stages[name])]
    inputs = load_inputs(local, loaded.cache_dir)
    lacks = [name for name in names if not _all_given(stages[name], scale)]
    kind = WholeRun if lacks else SmallRun
    found: dict[str, StageAtScale] = {}
    texts: dict[str, Part] = {}
    with untouched() as folder:
        run = kind(loaded, folder)
        for stage in needed(loaded, names):
            model = run.start(stage)
            if stage.name in names:
                job = run.job(stage, model, inputs.get(stage.name))
                texts |= _texts(job, scale)
                found[stage.name] = _stage(run, job, scale, parameters_of(stage.model, stages))
            run.save(stage, model)
    uncounted = [told for name in names for told in _silent(stages[name])]
    return Simulation(scale, list(texts.values()), found, began, uncounted)


def _check(loaded: LoadedRecipe, names: Sequence[str], scale: Scale) -> None:
    if processes.count() > 1:
        raise UserError("--simulate plans in one process; start it without torchrun or accelerate.")
    for rate in scale.rates:
        stage = rate.partition(".")[2]
        if stage and stage not in names:
            raise UserError(
                f"--simulate {rate}: expected a stage of the run, found {stage!r}; it has "
                f"{', '.join(names)}."
            )


def _all_given(stage: StageSpec, scale: Scale) -> bool:
    """Whether nothing of a stage is measured on its models."""
    works = ["encode"] if stage.loss is None else ["train", "encode"]
    return all(scale.rate(work, stage.name) is not None for work in works)


def _stage(run: SmallRun, job: Job, scale: Scale, weights: int) -> StageAtScale:
    stage, rows = job.stage, scale.texts
    name, demands = stage.name, list[Demand]()
    for ability in job.abilities:
        demands += ability.demands(job, scale, rows)
        rows = ability.expected_rows(stage, rows)
    demands += _evaluation(job, scale, rows)
    parts = [_part(name, demand, scale) for demand in demands]
    if stage.loss is None:
        job.finish()
        demand = Demand("model", disk=SAVED * weights)
        return StageAtScale([*parts, Part(name, demand, None)], SAVED * weights)
    given = scale.rate("train", name)
    rate, *rehearsed = _rehearsed(run, job) if given is None else (given,)
    demand = _training(stage, scale, rows, weights * _trained_share(job.model), weights)
    parts.append(Part(name, demand, rate, is_given=given is not None))
    return StageAtScale(parts, TRAINED * weights, *rehearsed)


def _rehearsed(run: SmallRun, job: Job) -> tuple[float | None, int, int, int]:
    """Take steps of a stage; return how many rows they train on a second, and the memory before
    them, with them, and on an accelerator. Of rows that are made up none of it is known.
    """
    rows, idle = _rows_of_step(job.stage), memory()[0]
    seconds = run.train(job)
    job.finish()
    if seconds is None:
        return None, 0, 0, 0
    return rows / seconds, idle, memory()[1], _device_memory()


def _part(stage: str, demand: Demand, scale: Scale) -> Part:
    given = scale.rate(demand.work, stage)
    if given is not None or not demand.count:
        return Part(stage, demand, given, is_given=True)
    return Part(stage, demand, demand.measure())


def _rows_of_step(stage: StageSpec) -> int:
    return stage.batch_size * int(stage.args.get("gradient_accumulation_steps", 1))


def _texts(job: Job, scale: Scale) -> dict[str, Part]:
    """Return a stage's text by what it is read from: large files lie on the disk, all others in
    memory, where those that were read lie already.
    """
    rows, own = job.inputs.sentences, job.stage.training_data
    if rows is None or not rows.count or own is None:
        return {}
    table = rows.rows.data if isinstance(rows, data.Sentences) else rows.dataset.data
    size = table.nbytes / len(table)
    whole, are_files = scale.texts * size, all(source.file for source in own.sources)
    demand = Demand("text", held=max(0.0, whole - table.nbytes))
    if isinstance(rows, data.Sentences) and are_files and is_converted(whole):
        demand = Demand("text", disk=whole, wire=scale.on_wires(whole))
    return {own.model_dump_json(): Part("run", demand, None)}


def _evaluation(job: Job, scale: Scale, rows: int) -> Iterator[Demand]:
    """The sets of `evaluate`: all of them at the start and the end, `dev` while it trains."""
    stage = job.stage
    counts = {name: sum(map(len, own.columns)) for name, own in job.inputs.sets.items()}
    if job.inputs.kept_out is not None:
        counts[DEV] = held_count(scale.texts)
    if not counts:
        return
    texts = _SCORED * sum(counts.values()) + _times(stage, rows, scale, "eval") * counts.get(DEV, 0)

    def measure() -> float | None:
        if stage.model.scores_pairs:
            return None
        return texts_a_second(job, lambda some: job.model.encode(some, show_progress_bar=False))

    yield Demand("evaluation", "encode", texts, measure)


def _times(stage: StageSpec, rows: int, scale: Scale, what: str) -> int:
    """Return how often a training evaluates (`eval`) or saves (`save`)."""
    if stage.loss is None:
        return 0
    arguments = training_arguments(stage, 0, Path(stage.name))
    strategy = str(getattr(arguments, f"{what}_strategy").value)
    if strategy == "no":
        return 0
    steps = steps_of(stage, rows, scale.processes) or 0
    if strategy == "epoch":
        return math.ceil(arguments.num_train_epochs)
    every = getattr(arguments, f"{what}_steps")
    # A share of all steps, or a number of them.
    return int(steps // (every if every >= 1 else max(1, math.ceil(every * steps))))


def _training(stage: StageSpec, scale: Scale, rows: int, trained: float, weights: int) -> Demand:
    count = scale.processes
    steps = steps_of(stage, rows, count) or 0
    saved, most = _times(stage, rows, scale, "save"), most_checkpoints(stage)
    # While the next checkpoint is written the last and the best are still there.
    saved = saved if most is None else min(saved, most + 2)
    return Demand(
        f"training, {steps:,} steps",
        "train",
        steps * _rows_of_step(stage),
        disk=SAVED * weights,
        beside=saved * KEPT * weights,
        # All-reduce: each process sends its share to all others, and their sum.
        wire=2 * (count - 1) / count * _GRADIENT * trained * steps,
        held=PLACE * rows,
    )


def _trained_share(model: Any) -> float:
    sizes = [(weight.numel(), weight.requires_grad) for weight in model.parameters()]
    return sum(size for size, trained in sizes if trained) / max(1, sum(size for size, _ in sizes))


def _silent(stage: StageSpec) -> Iterable[str]:
    """Yield the keys of a stage whose abilities work before the training, and say nothing of it."""
    works = ("begin", "prepare")
    for ability in used(stage):
        kind = type(ability)
        does = any(getattr(kind, name) is not getattr(Ability, name) for name in works)
        if does and kind.demands is Ability.demands:
            yield f"{ability.key} of {stage.name}"


def _device_memory() -> int:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
