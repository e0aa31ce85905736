"""What results.json tells of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from st_jtcse import processes
from st_jtcse.atomic import to_json
from st_jtcse.ownership import replace_ours
from st_jtcse.recipe.data_blocks import DEV
from st_jtcse.recipe.schema import Recipe
from st_jtcse.reports.run_report import Example, write_run_report
from st_jtcse.training.as_shipped import ShippedScores
from st_jtcse.training.provenance import environment
from st_jtcse.training.run_folder import RESULTS, RunFolder
from st_jtcse.training.stage_inputs import Inputs


def write_results(recipe: Recipe, folder: RunFolder, shipped: ShippedScores) -> None:
    """Leave results.json as far as the run is."""
    if processes.rank() == 0:
        replace_ours(folder.path / RESULTS, to_json(results_of(recipe, folder, shipped)))


def leave_report(
    recipe: Recipe, folder: RunFolder, shipped: ShippedScores, inputs: Mapping[str, Inputs]
) -> dict[str, Any]:
    """Leave the run's page as far as the run is, and return its results; `inputs` have the texts of
    its examples.
    """
    results = results_of(recipe, folder, shipped)
    if processes.rank() == 0:
        found, name = [], ""
        for record in results["stages"]:
            told = record.get("examples")
            own = (
                inputs[record["name"]].sets.get(told["set"])
                if told and record["name"] in inputs
                else None
            )
            if own is not None and own.pairs is not None:
                pairs, name = own.pairs, told["set"]
                found = [
                    Example(
                        pairs.sentences1[row], pairs.sentences2[row], pairs.scores[row], *cosines
                    )
                    for row, *cosines in zip(told["rows"], told["before"], told["after"])
                ]
        write_run_report(folder.path, results, found, name)
    return results


def results_of(recipe: Recipe, folder: RunFolder, shipped: ShippedScores) -> dict[str, Any]:
    """Return the results of a run's finished stages, beside the models that they start from."""
    records = [record for stage in recipe.stages if (record := folder.record(stage.name))]
    for record in records:
        shipped.take(record)
    return {
        "recipe": recipe.name,
        "seed": recipe.seed,
        "finished": len(records) == len(recipe.stages),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "environment": environment(),
        "as_shipped": shipped.scores,
        "data_sha256": shipped.data_sha256,
        "stages": records,
        # Of the last stage that has any.
        "verdicts": next(
            (record["verdicts"] for record in reversed(records) if record.get("verdicts")), []
        ),
    }


def best_stage(results: Mapping[str, Any]) -> str | None:
    """Return the name of the stage that ended best on dev, without dev the last; None if none is
    finished.
    """
    scored = {
        record["name"]: record["spearman"][DEV]
        for record in results["stages"]
        if DEV in record["spearman"]
    }
    names = (
        [max(scored, key=scored.__getitem__)]
        if scored
        else [record["name"] for record in results["stages"]]
    )
    return names[-1] if names else None
