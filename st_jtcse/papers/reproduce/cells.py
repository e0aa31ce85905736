"""The small recipes of some items, run over seeds; a stage that several of them have is trained
once.
"""

from __future__ import annotations

import json
import logging
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from st_jtcse import bundled
from st_jtcse.correlation import spearman
from st_jtcse.data import Pairs, Source, load_pairs
from st_jtcse.errors import UserError
from st_jtcse.modules import load_sentence_transformer
from st_jtcse.papers import diagnostics
from st_jtcse.papers.diagnostics.diagnosis import Diagnosis, Plan, diagnose
from st_jtcse.papers.diagnostics.encoders import GROUPS
from st_jtcse.papers.reproduce.given_sets import GivenSets
from st_jtcse.papers.reproduce.items import Item, Measure, Place
from st_jtcse.pooling_names import PoolingName
from st_jtcse.recipe.blocks import DEV
from st_jtcse.recipe.load import LoadedRecipe, load_recipe
from st_jtcse.records import StageRecord
from st_jtcse.reports.dev_curves import read_curves
from st_jtcse.reports.seed_reports import common_score
from st_jtcse.training import runner
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.sweep import Run, plan_runs

logger = logging.getLogger(__name__)

RUNS, RESULTS = "runs", "results"
# Figures by seed of a row, by its label.
Figures = dict[str, list[float]]


class Cells:
    """What the small recipes gave, below one folder.

    Args:
        folder: The folder of the command.
        seeds: The seeds of every row.
        given: Sets to score on in place of the bundled pairs.
    """

    def __init__(self, folder: Path, seeds: Sequence[int], given: GivenSets | None = None) -> None:
        self.folder, self.seeds, self.given = folder, list(seeds), given
        self.failed: dict[str, str] = {}  # what a recipe failed with, by its name
        self._runs: dict[tuple[str, int | None, int], Path] = {}
        self._done: dict[tuple[int, str], Path] = {}
        self._rehearsed: set[str] = set()

    def train(self, items: Iterable[Item]) -> None:
        """Run what the rows of these items need, and go on after a recipe that fails."""
        needed: dict[str, list[Place]] = defaultdict(list)
        for item in items:
            if item.make == "settings":
                continue
            for place in item.places().values():
                needed[place.recipe].append(place)
        for number, (name, places) in enumerate(needed.items(), 1):
            logger.info("[%d/%d] %s", number, len(needed), name)
            try:
                self._train(name, places)
            except UserError as error:
                self.failed[name] = "; ".join(error.faults)
            except Exception as error:  # As many as there are libraries; the other cells stand.
                self.failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            if told := self.failed.get(name):
                logger.warning("%s failed: %s", name, told)

    def _train(self, name: str, places: Sequence[Place]) -> None:
        for run, point in self._planned(name):
            stages = {place.stage for place in places if place.point in (None, point)}
            if not stages:
                continue
            names = _with_earlier(run.loaded, stages)
            keys = {stage: (run.seed, key) for stage, key in run.loaded.keys.items()}
            finished = {stage: self._done[key] for stage, key in keys.items() if key in self._done}
            logger.info("%s, %s, seed %d", name, run.point, run.seed)
            runner.run(run.loaded, names, resume=True, finished=finished, rehearsed=self._rehearsed)
            folder = RunFolder(run.folder)
            for stage, key in keys.items():
                if folder.record(stage) is not None:
                    self._done[key] = folder.stage(stage)
            self._runs[name, point, run.seed] = run.folder

    def _planned(self, name: str) -> list[tuple[Run, int | None]]:
        where = json.dumps(str(self.folder / RUNS / name))
        overrides = [f"output_dir={where}", f"seeds={json.dumps(self.seeds)}"]
        loaded = load_recipe(name, overrides)
        runs = plan_runs(loaded, name, overrides)
        if loaded.recipe.sweep is None:
            return [(run, None) for run in runs]
        return [(run, at // len(self.seeds) + 1) for at, run in enumerate(runs)]

    def stage(self, place: Place, seed: int) -> Path | None:
        """Return the folder of a finished stage, None where it failed."""
        run = self._runs.get((place.recipe, place.point, seed))
        return None if run is None else run / place.stage

    def figures(self, item: Item) -> Figures:
        """Return an item's figures by row and seed; a row that failed has none."""
        if item.make == "convergence":
            return self._steps(item)
        if item.make == "settings":
            return {label: [_rate(place)] for label, place in item.places().items()}
        found: Figures = {}
        for label, place in item.places().items():
            stages = [stage for seed in self.seeds if (stage := self.stage(place, seed))]
            if len(stages) == len(self.seeds):
                found[label] = [self._figure(item, place, stage) for stage in stages]
        return found

    def _figure(self, item: Item, place: Place, stage: Path) -> float:
        measure = place.measure or item.measure
        if measure != "score":
            return measured(self.diagnosis(item, "", stage), measure)
        if self.given is not None and self.given.jobs[item.sets]:
            return self.given.score(item.sets, stage, place.pooling, self.folder / RESULTS)
        if place.pooling is not None:
            pooling: PoolingName = TypeAdapter(PoolingName).validate_python(place.pooling)
            model = load_sentence_transformer(stage, pooling=pooling)
            pairs = pairs_of(item)
            first = diagnostics.unit_vectors(model.encode(pairs.sentences1))
            second = diagnostics.unit_vectors(model.encode(pairs.sentences2))
            return 100 * spearman((first * second).sum(axis=1), pairs.scores)
        record = RunFolder(stage.parent).record(stage.name)
        assert record is not None
        return score_of(record)

    def diagnosis(self, item: Item, label: str, stage: Path) -> Diagnosis:
        """Look into the model of a finished stage."""
        return diagnose(label, load_sentence_transformer(stage), plan_of(item))

    def _steps(self, item: Item) -> Figures:
        runs = [(str(item.recipe), None, seed) for seed in self.seeds]
        if not self._runs.keys() >= set(runs):
            return {}
        stages = {place.stage for place in item.places().values()}
        found_curves = read_curves([self._runs[run] for run in runs])
        curves = [curve for curve in found_curves if curve.stage in stages]
        score = common_score(curves)
        found: Figures = {}
        for label, place in item.places().items():
            own = [curve.reaches(score) for curve in curves if curve.stage == place.stage]
            steps = [float(reached.step) for reached in own if reached is not None]
            if len(steps) == len(self.seeds):
                found[label] = steps
        return found


def _rate(place: Place) -> float:
    """Return a stage's learning rate, x 1e6."""
    stages = load_recipe(place.recipe).stages
    stage = next(stage for stage in stages if stage.name == place.stage)
    return round(1e6 * float(stage.args["learning_rate"]), 6)


def _with_earlier(loaded: LoadedRecipe, stages: set[str]) -> list[str]:
    """Return stages and all that they start from."""
    needed = set(stages)
    for stage in reversed(loaded.stages):
        if stage.name in needed:
            needed.update(stage.earlier)
    return loaded.choose(sorted(needed))


def score_of(record: StageRecord) -> float:
    """Return the mean over a stage's test sets, or its score on dev where it has none."""
    tests = [score for name, score in record.spearman.items() if name != DEV]
    return statistics.fmean(tests or record.spearman.values())


def pairs_of(item: Item) -> Pairs:
    """Return the bundled pairs on which an item's models are looked at: none that they trained
    on.
    """
    part = "dev" if item.paper == "CoSENT" else "test"
    place = bundled.recipes()["quickstart"].parent / "quickstart" / f"pairs.{part}.jsonl"
    return load_pairs(Source(file=place), (0.0, 5.0))


def plan_of(item: Item) -> Plan:
    """Return what is asked of an item's models."""
    pairs = pairs_of(item)
    sentence = item.sentence or pairs.sentences1[0]
    return Plan(pairs, (0.0, 5.0), sentence, item.map, 100, 42, item.cases)


def measured(found: Diagnosis, measure: Measure) -> float:
    """Return one figure of a diagnosis; of several encoders the mean."""
    if measure == "modulus":
        return statistics.fmean(float(one.hidden.mean()) for one in found.modulus.values())
    if measure == "sep_share":
        sep = GROUPS.index("SEP")
        return statistics.fmean(float(one.mass[:, sep].mean()) for one in found.sink.values())
    of: dict[Measure, Any] = {
        "score": found.spearman,
        "alignment": found.alignment,
        "uniformity": found.uniformity,
        "energy": found.mean_energy,
        "spread": found.cosines.std(),
        "top_fifth": found.density.means[-1],
    }
    return float(of[measure])
