"""What results.json tells of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping

from st_jtcse import processes
from st_jtcse.atomic import to_json
from st_jtcse.data.pairs import Pairs
from st_jtcse.evaluation.unlabelled import is_agreement
from st_jtcse.ownership import replace_ours
from st_jtcse.recipe.blocks import DEV
from st_jtcse.recipe.schema import Recipe
from st_jtcse.records import Examples, RunResults
from st_jtcse.reports.run_report import Example, write_run_report
from st_jtcse.training.as_shipped import ShippedScores
from st_jtcse.training.provenance import environment
from st_jtcse.training.run_folder import RESULTS, RunFolder
from st_jtcse.training.stage_inputs import Inputs


def write_results(recipe: Recipe, folder: RunFolder, shipped: ShippedScores) -> None:
    """Leave results.json as far as the run is."""
    if processes.rank() == 0:
        replace_ours(folder.path / RESULTS, to_json(results_of(recipe, folder, shipped).plain()))


def leave_report(
    recipe: Recipe, folder: RunFolder, shipped: ShippedScores, inputs: Mapping[str, Inputs]
) -> RunResults:
    """Leave the run's page as far as the run is, and return its results; `inputs` have the texts of
    its examples.
    """
    results = results_of(recipe, folder, shipped)
    if processes.rank() == 0:
        found: list[Example] = []
        name = ""
        for record in results.stages:
            told = record.examples
            own = inputs[record.name].sets.get(told.set) if record.name in inputs else None
            if own is not None and own.pairs is not None:
                found, name = _examples(told, own.pairs), told.set
        write_run_report(folder.path, results, found, name)
    return results


def _examples(told: Examples, pairs: Pairs) -> list[Example]:
    texts = list(zip(pairs.sentences1, pairs.sentences2, pairs.scores))
    return [
        Example(*texts[row], before, after)
        for row, before, after in zip(told.rows, told.before, told.after)
        if row < len(texts)
    ]


def results_of(recipe: Recipe, folder: RunFolder, shipped: ShippedScores) -> RunResults:
    """Return the results of a run's finished stages, beside the models that they start from."""
    records = [record for stage in recipe.stages_of_run if (record := folder.record(stage.name))]
    for record in records:
        shipped.take(record.as_shipped, record.data_sha256)
    return RunResults(
        recipe=recipe.name,
        seed=recipe.seed,
        finished=len(records) == len(recipe.stages_of_run),
        written=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        environment=environment(),
        as_shipped=shipped.scores,
        data_sha256=shipped.data_sha256,
        stages=records,
        # Of the last stage that has any.
        verdicts=next((record.verdicts for record in reversed(records) if record.verdicts), []),
    )


def best_stage(results: RunResults) -> str | None:
    """Return the name of the stage that ended best on dev; the last one where there is no dev, or
    where each stage's own teachers say on dev what is right; None if none is finished.
    """
    with_dev = [record for record in results.stages if DEV in record.spearman]
    has_own_reference = any(is_agreement(record.metrics.get(DEV)) for record in with_dev)
    if with_dev and not has_own_reference:
        return max(with_dev, key=lambda record: record.spearman[DEV]).name
    if results.stages:
        return results.stages[-1].name
    return None
