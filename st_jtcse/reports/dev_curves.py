"""The evaluations on dev that runs of `st-train` left."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from st_jtcse.errors import UserError

# Spearman on the set that chooses checkpoints, of a bi-encoder's cosines or of a cross-encoder's scores.
_DEV = ("eval_dev_spearman_cosine", "eval_dev_spearman")
_RESULTS = "results.json"
# Hashed for the stages that train on them only.
_JUDGED = "pair_scores"


class Evaluation(NamedTuple):
    """The score on dev, Spearman x 100, after so many steps and seconds of training."""

    step: int
    seconds: float
    score: float


@dataclass(frozen=True)
class Curve:
    """One stage of one run."""

    stage: str  # the stage's name
    seed: int  # the run's seed
    evaluations: tuple[Evaluation, ...]  # in the order of the run; the first is that of step 0
    final: dict[str, float]  # Spearman x 100 of the saved model on each evaluation set

    @property
    def best(self) -> float:
        """Return the best score on dev."""
        return max(evaluation.score for evaluation in self.evaluations)

    def reaches(self, score: float) -> Evaluation | None:
        """Return the first evaluation that is at least as good, None if there is none."""
        return next((evaluation for evaluation in self.evaluations if evaluation.score >= score), None)


def read_curves(folders: Sequence[Path]) -> list[Curve]:
    """Read the evaluations that runs of `st-train` left.

    Args:
        folders: Output folders of runs, whose finished stages count. Stages of one name are the same stage under other
            seeds.

    Raises:
        UserError: A folder holds no run or one with a score that is no number, the runs are of several recipes, two
            runs have one seed or a stage of other data, or nothing was evaluated on dev.
    """
    curves: list[Curve] = []
    taken: dict[tuple[str, int], Path] = {}
    data: dict[str, tuple[Path, dict[str, str]]] = {}
    recipes: dict[str, Path] = {}
    for folder in folders:
        results = _results(folder)
        recipes.setdefault(results["recipe"], folder)
        if len(recipes) > 1:
            first, second = recipes.items()
            raise UserError(
                f"{second[1]} is a run of {second[0]} and {first[1]} one of {first[0]}; compare runs of one recipe."
            )
        for curve, hashes in _stages(folder, results):
            key = curve.stage, curve.seed
            if key in taken:
                raise UserError(
                    f"{folder}: the stage {key[0]!r} has seed {key[1]}, as in {taken[key]}; give runs of other seeds."
                )
            taken[key] = folder
            other, theirs = data.setdefault(curve.stage, (folder, hashes))
            # A test set of some runs only is left out of the means.
            differing = [name for name in hashes if theirs.get(name, hashes[name]) != hashes[name]]
            if differing or (_JUDGED in theirs) != (_JUDGED in hashes):
                raise UserError(
                    f"{folder} and {other}: the stage {curve.stage!r} is of other data ({(differing or [_JUDGED])[0]}) "
                    "in one than in the other; compare runs over the same data."
                )
            curves.append(curve)
    if not curves:
        raise UserError(
            f"{', '.join(map(str, folders))}: no stage was evaluated on dev while it trained; set args.eval_strategy "
            "and evaluate.dev, and run it again."
        )
    return curves


def _results(folder: Path) -> dict[str, Any]:
    path = folder / _RESULTS
    if not path.is_file():
        raise UserError(f"{folder}: no {_RESULTS} there; give the output folder of a run of st-train.")
    with _foreign_told(path):
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        results["stages"], results["recipe"], results["seed"]
    return results


def _stages(folder: Path, results: dict[str, Any]) -> Iterator[tuple[Curve, dict[str, str]]]:
    """Give the stages that were evaluated on dev, each with the hashes of its data."""
    path = folder / _RESULTS
    for record in results["stages"]:
        with _foreign_told(path):
            name, evaluations = record["name"], tuple(_evaluations(record))
            if not evaluations:
                continue
            curve, hashes = Curve(name, results["seed"], evaluations, record["spearman"]), record["data_sha256"]
            scores = {f"dev at step {evaluation.step}": evaluation.score for evaluation in evaluations} | curve.final
            faulty = [place for place, score in scores.items() if not math.isfinite(score)]
        if faulty:
            raise UserError(
                f"{path}: the score of the stage {name!r} on {faulty[0]} is {scores[faulty[0]]}, which no mean can "
                "hold; leave the run out, or train it again."
            )
        yield curve, hashes


@contextmanager
def _foreign_told(path: Path) -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise UserError(f"{path}: not the results of st-train (no {error}); run the recipe again.") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not the results of st-train ({error!r}); run the recipe again.") from error


def _evaluations(record: dict[str, Any]) -> list[Evaluation]:
    found = []
    for entry in record.get("log", []):
        key = next((key for key in _DEV if key in entry), None)
        if key is not None:
            found.append(Evaluation(entry["step"], entry["train_seconds"], round(100 * entry[key], 4)))
    if found and found[0].step and "dev" in record["spearman_start"]:
        found.insert(0, Evaluation(0, 0.0, record["spearman_start"]["dev"]))
    return found
