"""What a run would do, without doing it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from st_jtcse.errors import ways_out
from st_jtcse.modules import loading
from st_jtcse.modules.model_folders import CONFIG, located, read_listing
from st_jtcse.recipe.choices import CHOICES
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import STAGE_PREFIX, ModelSpec, Recipe, StageSpec
from st_jtcse.reports.table import Table, millions
from st_jtcse.training.as_shipped import begins_as
from st_jtcse.training.forecast import rows_of, sizes, steps_of
from st_jtcse.training.models import KEYS, OF_FRESH, changed_config
from st_jtcse.training.rehearsal import rehearse
from st_jtcse.training.stage_inputs import is_local, load_inputs


def plan(recipes: Sequence[LoadedRecipe], names: list[str]) -> tuple[Table, dict[str, list[str]]]:
    """Plan the stages of the first recipe, and rehearse those of all, each once where they share
    it.

    Local data are read, models' configurations loaded, and nothing is written. Returns a table of
    the stages, and under headings what each begins with and lines about data, time, memory and
    disk; raises UserError.
    """
    loaded, done = recipes[0], set[str]()
    stages = {stage.name: stage for stage in loaded.stages}
    inputs = load_inputs(
        [stages[name] for name in names if is_local(stages[name])], loaded.cache_dir
    )
    rows, models, parameters = [], [], []
    for stage in (stages[name] for name in names):
        # None if they come from the Hub, which a plan does not download.
        sentences = 0 if stage.loss is None else rows_of(stage, inputs.get(stage.name))
        models.append(f"{stage.name}: {begins_as(stage.model)}")
        parameters.append(parameters_of(stage.model, stages))
        steps = steps_of(stage, sentences)
        rows.append(
            [
                stage.name,
                stage.loss.type if stage.loss else "- (assembled)",
                millions(parameters[-1]),
                "from the Hub" if sentences is None else str(sentences),
                "?" if steps is None else str(steps),
                ", ".join(stage.evaluate.sets if stage.evaluate else ()) or "-",
            ]
        )
    notes = rehearse(loaded, names, inputs, done)
    for other in recipes[1:]:
        rehearse(other, names, None, done)
    columns = ["stage", "loss", "parameters", "sentences", "steps", "evaluated on"]
    purpose = f" for {loaded.recipe.purpose}" if loaded.recipe.purpose else ""
    table = Table(columns, rows, f"plan{purpose} (nothing is written)", names=len(columns))
    return table, {
        "Models": models,
        "Notes": [
            *_choices(loaded.recipe),
            *notes,
            sizes(parameters, Path(loaded.recipe.output_dir)),
        ],
    }


def _choices(recipe: Recipe) -> list[str]:
    chosen = recipe.model_dump(include=set(CHOICES), exclude_none=True)
    told = ", ".join(f"{key}: {value}" for key, value in chosen.items())
    left_out = recipe.left_out
    # In the recipe's order.
    without = [stage.name for stage in recipe.stages if stage.name in left_out]
    if not without:
        return [told] if told else []
    return [f"{told}; without the stage{'s'[: len(without) - 1]} {', '.join(without)}"]


def parameters_of(spec: ModelSpec, stages: dict[str, StageSpec]) -> int:
    """Return how many weights a stage's model has, by configurations alone."""
    return sum(_parameters_of(name, spec, stages) for name in spec.models.values())


def _parameters_of(name: str, spec: ModelSpec, stages: dict[str, StageSpec]) -> int:
    if not name.startswith(STAGE_PREFIX):
        place = located(name)
        if read_listing(place) and not Path(place, CONFIG).is_file():
            # Encoders that lie in folders of their own: there is no one configuration to count by.
            with ways_out(KEYS):
                model = loading.load_sentence_transformer(
                    name, trust_remote_code=spec.trust_remote_code
                )
            return sum(parameter.numel() for parameter in model.parameters())
        return _count(name, spec)
    earlier = stages[name.removeprefix(STAGE_PREFIX)].model
    if spec.tower is not None and earlier.towers:
        return _parameters_of(
            earlier.towers[spec.tower - 1], spec.model_copy(update={"tower": None}), stages
        )
    if (spec.layers is None and spec.fresh is None) or earlier.base is None:
        return parameters_of(earlier, stages)
    return _parameters_of(earlier.base, spec, stages)


def _count(name: str, spec: ModelSpec) -> int:
    config = changed_config(name, spec)
    if spec.layers is not None:
        config.num_hidden_layers = len(spec.layers)
    if spec.scores_pairs:
        config.num_labels = spec.num_labels
    with torch.device("meta"):
        model = loading.build(
            name,
            config,
            cross_encoder=spec.scores_pairs,
            to_blame=None if spec.fresh is None else OF_FRESH,
            trust_remote_code=spec.trust_remote_code,
        )
    return sum(parameter.numel() for parameter in model.parameters())
