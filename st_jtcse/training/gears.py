"""What a recipe's gears would take here, each value of `effort` one, beside what they gained where
they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from st_jtcse.errors import UserError
from st_jtcse.recipe.choices import CHOICES, left_out_of
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import STAGE_PREFIX, StageSpec
from st_jtcse.training.forecast import counts_of, duration, steps_of

_KEY = "effort"


def gear_lines(
    loaded: LoadedRecipe, texts: int, step: Mapping[str, float], encoding: float
) -> list[str]:
    """Say of each gear about how long it takes, and what it gained; nothing of a recipe that says
    no gains, or of a run whose gears are all alike.

    Args:
        loaded: The recipe.
        texts: How many texts it reads.
        step: Seconds of a step by stage, of stages that were rehearsed. A stage of another gear is
            taken to be as fast as one with the same loss.
        encoding: Seconds of a text that is embedded.
    """
    gained = loaded.recipe.gained or {}
    gears = {gear: _stages(loaded, gear) for gear in CHOICES[_KEY] if gear in gained}
    if len(set(map(tuple, gears.values()))) < 2:
        return []
    stages = {placed.spec.name: placed.spec for placed in loaded.placed}
    by_loss = {str(stages[name].loss): seconds for name, seconds in step.items()}
    told = []
    for gear, names in gears.items():
        seconds = _seconds([stages[name] for name in names], texts, by_loss, encoding)
        time = "not timed" if seconds is None else f"about {duration(seconds)} here"
        this = " (this run)" if gear == loaded.recipe.effort else ""
        told.append(f"{_KEY}={gear}{this}: {time}; gained {gained[gear]}")
    return told


def _stages(loaded: LoadedRecipe, gear: str) -> list[str]:
    """Name the stages that a run in a gear has."""
    stages = [placed.spec for placed in loaded.placed]
    chosen = loaded.recipe.model_dump(include=set(CHOICES)) | {_KEY: gear}
    left_out = left_out_of(stages, chosen)
    return [stage.name for stage in stages if stage.name not in left_out]


def _seconds(
    stages: Sequence[StageSpec], texts: int, by_loss: Mapping[str, float], encoding: float
) -> float | None:
    """Return what steps and embeddings take; None where a loss was not timed, or where they do not
    follow from the recipe.
    """
    total = encoding * _embedded(stages, texts)
    for stage in stages:
        if stage.loss is None:
            continue
        if str(stage.loss) not in by_loss:
            return None
        try:
            steps = steps_of(stage, counts_of(stage, texts)[-1])
        except UserError:  # Arguments that do not go with a stage that this run does not have.
            return None
        total += by_loss[str(stage.loss)] * (steps or 0)
    return total


def _embedded(stages: Sequence[StageSpec], texts: int) -> int:
    """Return how many texts are embedded: the text by each encoder, those of teachers and of the
    models that are only fitted.
    """
    known = {stage.name: stage for stage in stages}
    found = {
        # Rows that are drawn are fewer; those that are trained on beside them come later.
        (_encoder(name, known), min(counts_of(stage, texts)))
        for stage in stages
        if stage.reads_rows
        for name in _models(stage)
    }
    return sum(count for _, count in found)


def _models(stage: StageSpec) -> list[str]:
    if stage.loss is None:
        return list(stage.model.models.values())
    return [frozen.model for frozen in stage.frozen_models.values()]


def _encoder(name: str, stages: Mapping[str, StageSpec]) -> str:
    """Return whose weights a model has: those of the last stage that trained them, or of the model
    as shipped.
    """
    while name.startswith(STAGE_PREFIX):
        stage = stages[name.removeprefix(STAGE_PREFIX)]
        if stage.loss is not None or stage.model.base is None:
            break
        name = stage.model.base
    return name
