"""One recipe under several seeds and values: a run for each, stages that cannot differ trained
once.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from st_jtcse import processes
from st_jtcse.atomic import to_json
from st_jtcse.errors import UserError
from st_jtcse.ownership import check_place, replace_ours
from st_jtcse.recipe.load import LoadedRecipe, load_recipe
from st_jtcse.reports import seed_reports
from st_jtcse.reports.drawing import save
from st_jtcse.reports.table import Table
from st_jtcse.training import runner
from st_jtcse.training.as_shipped import ShippedScores
from st_jtcse.training.rehearsal import rehearse
from st_jtcse.training.run_folder import RunFolder, tell_if_nothing_to_resume

_FILES = ("sweep.json", "sweep.png", "sweep.svg")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """One run of a sweep."""

    point: str  # What was changed, as told in tables
    values: dict[str, Any]  # The same, value by key
    seed: int
    # The recipe with these values, this seed and a folder of its own.
    loaded: LoadedRecipe

    @property
    def folder(self) -> Path:
        """Return the run's output folder."""
        return Path(self.loaded.recipe.output_dir)


def plan_runs(loaded: LoadedRecipe, reference: str, overrides: Sequence[str] = ()) -> list[Run]:
    """Return the runs of a recipe with `seeds` or `sweep`, each checked as a recipe of its own;
    none without these.

    `reference` and `overrides` are what the recipe was loaded by. Raises UserError if a key or
    value of the sweep does not fit the recipe, or is listed twice.
    """
    if loaded.recipe.seeds is None and loaded.recipe.sweep is None:
        return []
    blocks = loaded.recipe.sweep or [{}]
    seeds = loaded.recipe.seeds or [loaded.recipe.seed]
    root = Path(loaded.recipe.output_dir)
    keys = {key for block in blocks for key in block}
    points = [
        dict(zip(block, values))
        for block in blocks
        for values in itertools.product(*block.values())
    ]
    runs: dict[str, Run] = {}
    for number, point in enumerate(points, 1):
        told = ", ".join(f"{_short(key, keys)} {_shown(value)}" for key, value in point.items())
        place = root / f"{number:02d}" if loaded.recipe.sweep else root
        for seed in seeds:
            own = load_recipe(
                reference,
                overrides,
                {**point, "seed": seed, "output_dir": str(place / f"seed-{seed}")},
            )
            run = Run(told or "as written", point, seed, own)
            anywhere = own.recipe.model_copy(update={"output_dir": "anywhere"}).model_dump_json()
            if anywhere in runs:
                told_twice = f"the sweep lists the same run twice ({run.point}, seed {seed})"
                raise UserError(f"{loaded.path}: {told_twice}; remove one.")
            runs[anywhere] = run
    return list(runs.values())


def run_all(
    loaded: LoadedRecipe,
    runs: Sequence[Run],
    names: Sequence[str] = (),
    *,
    resume: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
) -> None:
    """Run them in order, below the output folder of the recipe; `callbacks` watch the training of
    every stage.

    A stage that has the same settings, seed and earlier stages in two runs is trained in the first
    and linked into the other.
    """
    top = RunFolder(Path(loaded.recipe.output_dir))
    top.check(loaded.recipe, resume)
    if resume and processes.rank() == 0:
        top.adopt_older((), _FILES)
    check_place(*(top.path / name for name in _FILES))
    rehearsed: set[str] = set()
    for run in runs:
        rehearse(run.loaded, run.loaded.choose(names), None, rehearsed)
    with top.open(loaded.recipe, resume):
        if resume:
            stages = [stage.name for stage in loaded.stages]
            tell_if_nothing_to_resume(top.path, [run.folder for run in runs], stages)
        done: dict[tuple[int, str], Path] = {}
        train = partial(runner.run, resume=resume, rehearsed=rehearsed, callbacks=callbacks)
        for number, run in enumerate(runs, 1):
            logger.info("run %d of %d: %s, seed %d", number, len(runs), run.point, run.seed)
            keys = {name: (run.seed, key) for name, key in run.loaded.keys.items()}
            finished = {name: done[key] for name, key in keys.items() if key in done}
            train(run.loaded, names, finished=finished)
            folder = RunFolder(run.folder)
            for name, key in keys.items():
                if folder.record(name):
                    done[key] = folder.stage(name)


def report(loaded: LoadedRecipe, runs: Sequence[Run]) -> Table:
    """Leave sweep.json and, with matplotlib, a picture of the runs in the output folder; return
    their table.
    """
    folder = Path(loaded.recipe.output_dir)
    finished, shipped = [], ShippedScores({})
    metrics: dict[str, str] = {}
    for run in runs:
        records = {
            stage.name: RunFolder(run.folder).record(stage.name)
            for stage in run.loaded.recipe.stages_of_run
        }
        found = {name: record for name, record in records.items() if record is not None}
        for record in found.values():
            shipped.take(record.as_shipped, record.data_sha256)
            metrics |= record.metrics
        finished.append((run.point, found))
    rows = seed_reports.summarize(finished, changed_stages(runs))
    told = {
        "recipe": loaded.recipe.name,
        "runs": [
            {"setting": run.values, "seed": run.seed, "folder": str(run.folder.relative_to(folder))}
            for run in runs
        ],
        "as_shipped": shipped.scores,
        "metrics": metrics,
        "stages": [dataclasses.asdict(row) for row in rows],
    }
    replace_ours(folder / "sweep.json", to_json(told))
    try:
        save(seed_reports.draw_sweep(rows, metrics), folder, "sweep")
    except UserError as error:  # The numbers are there; the picture can be had later.
        logger.warning("%s", error)
    return seed_reports.sweep_table(rows, loaded.recipe.name, shipped.scores, metrics)


def changed_stages(runs: Sequence[Run]) -> list[str]:
    """Return the names of the stages in which runs of one seed differ; with seeds alone, of every
    stage.
    """
    keys: dict[str, set[str]] = {}
    for run in runs:
        for name, key in run.loaded.keys.items():
            keys.setdefault(name, set()).add(key)
    only_seeds = len({run.point for run in runs}) == 1
    return [name for name, found in keys.items() if only_seeds or len(found) > 1]


def _short(key: str, keys: Iterable[str]) -> str:
    """Return the shortest end of a key that no other key has."""
    parts = key.split(".")
    ends = (".".join(parts[at:]) for at in range(len(parts) - 1, -1, -1))
    return next(
        (end for end in ends if sum(f".{other}".endswith(f".{end}") for other in keys) == 1), key
    )


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return Path(value).name
    if isinstance(value, list):
        return "+".join(_shown(item) for item in value)
    return json.dumps(value)
