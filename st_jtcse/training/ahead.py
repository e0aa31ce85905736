"""What a run computes before it trains, made ahead of it and in shares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from st_jtcse.data.arrow_files import DEFAULT_CACHE
from st_jtcse.data.shards import SharesMissing
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import STAGE_PREFIX
from st_jtcse.training.job import Job
from st_jtcse.training.models import Resolve, resolver
from st_jtcse.training.rehearsal import rehearse
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.stage import seed_of, start_of
from st_jtcse.training.stage_inputs import load_inputs


def compute_ahead(
    loaded: LoadedRecipe, names: Sequence[str], done: set[tuple[int, str]], rehearsed: set[str]
) -> list[str]:
    """Compute what stages keep in the cache, as a run of them does, and train nothing; within
    :func:`~st_jtcse.data.shards.in_share` one share of it. Nothing is written to the output folder.

    Args:
        loaded: The recipe.
        names: Its stages.
        done: Seeds and keys of stages, of any recipe, that need nothing any more; completed.
        rehearsed: Keys of stages that were rehearsed already, likewise.

    Returns:
        Lines about what cannot be computed yet.

    Raises:
        UserError: A stage could not train, a model does not load, or the disk is full.
    """
    folder = RunFolder(Path(loaded.recipe.output_dir))
    holds = folder.holds(loaded.recipe)
    finished = {stage.name for stage in loaded.stages if holds and folder.record(stage.name)}
    keys = {name: (loaded.recipe.seed, key) for name, key in loaded.keys.items()}
    left = [name for name in names if name not in finished and keys[name] not in done]
    stages = [stage for stage in loaded.stages if stage.name in left]
    inputs = load_inputs(stages, loaded.cache_dir)
    rehearse(loaded, left, inputs, rehearsed)
    told: list[str] = []
    for stage in stages:
        job = _Ahead(
            stage=stage,
            inputs=inputs[stage.name],
            model=None,
            folder=folder.stage(stage.name),
            cache_dir=loaded.cache_dir or DEFAULT_CACHE,
            seed=seed_of(loaded, stage),
            resolve=_resolver(folder, finished),
        )
        told += _computed(job)
    done.update(keys[name] for name in left)
    return told


class _Awaited(Exception):
    """A stage is not trained yet whose model is to be read."""


class _Ahead(Job):
    """A stage of which nothing is trained; its start is assembled where it is asked for."""

    _start: Any = None

    @property
    def model(self) -> Any:
        """What the stage starts from."""
        if self._start is None:
            self._start = start_of(self.stage, self.resolve, self.seed)
        return self._start

    @model.setter
    def model(self, value: Any) -> None:
        self._start = value


def _resolver(folder: RunFolder, finished: set[str]) -> Resolve:
    ours = resolver(folder)

    def resolve(name: str) -> str:
        if name.startswith(STAGE_PREFIX) and name.removeprefix(STAGE_PREFIX) not in finished:
            raise _Awaited(name)
        return ours(name)

    return resolve


def _computed(job: Job) -> list[str]:
    """Let a stage's abilities compute their files; return what cannot be computed yet."""
    rows, name, told = job.inputs.sentences, job.stage.name, list[str]()
    if rows is not None:
        job.dataset, job.digest = rows.dataset, rows.sha256
    try:
        for ability in job.abilities:
            for compute in ability.ahead(job):
                try:
                    compute()
                except SharesMissing:
                    continue  # The other files can be computed all the same.
                except _Awaited as error:
                    told.append(_waits(name, error))
    except SharesMissing:
        told.append(
            f"stage {name} makes its rows of these files; what needs the rows is computed by the "
            "run, or by the shares once more when the files are whole"
        )
    except _Awaited as error:
        told.append(_waits(name, error))
    return list(dict.fromkeys(told))


def _waits(name: str, error: _Awaited) -> str:
    return (
        f"stage {name} needs {error}, which is trained first; its vectors are computed by the run"
    )
