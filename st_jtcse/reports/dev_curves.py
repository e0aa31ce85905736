"""The evaluations on dev that runs of `st-train` left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from st_jtcse.errors import UserError
from st_jtcse.records import RunResults, StageRecord, read

# Of runs that do not say it: of a bi-encoder's cosines or of a cross-encoder's scores.
_SPEARMAN = ("spearman_cosine", "spearman")
# What a log entry of the trainer has beside the loss and its terms.
_NO_TERMS = {"grad_norm", "learning_rate", "epoch", "step", "train_seconds"}
# Hashed for the stages that train on them only.
_OF_SOME = ("pair_scores", "anchors")


class Evaluation(NamedTuple):
    """The score on dev x 100, after so many steps and seconds of training."""

    step: int
    seconds: float
    score: float


@dataclass(frozen=True)
class Curve:
    """One stage of one run."""

    stage: str  # the stage's name
    seed: int  # the run's seed
    # In the order of the run; the first is that of step 0.
    evaluations: tuple[Evaluation, ...]
    final: dict[str, float]  # Score x 100 of the saved model on each evaluation set
    # That of the models which it starts from, as shipped, by model and set
    as_shipped: dict[str, dict[str, float]] = field(default_factory=dict)
    # What the scores are, by set, where it is said.
    metrics: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> float:
        """Return the best score on dev."""
        return max(evaluation.score for evaluation in self.evaluations)

    def reaches(self, score: float) -> Evaluation | None:
        """Return the first evaluation that is at least as good, None if there is none."""
        return next(
            (evaluation for evaluation in self.evaluations if evaluation.score >= score), None
        )


def loss_terms(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the loss and its terms in an entry of the trainer's log; nothing in one of another
    kind.
    """
    if "loss" not in entry:
        return {}
    return {name: value for name, value in entry.items() if name not in _NO_TERMS}


def read_curves(folders: Sequence[Path]) -> list[Curve]:
    """Read the evaluations in the output folders of runs; stages of one name are one stage under
    other seeds.

    Raises UserError where a folder holds no run or one with a score that is no number, the runs are
    of several recipes, two runs have one seed or a stage of other data, or nothing was evaluated on
    dev.
    """
    curves: list[Curve] = []
    taken: dict[tuple[str, int], Path] = {}
    data: dict[str, tuple[Path, dict[str, str]]] = {}
    for folder, run in _runs(folders):
        for stage in run.stages:
            curve, hashes = _curve(stage, run.seed), stage.data_sha256
            if not curve.evaluations:
                continue
            _check_scores(curve, folder)
            key = curve.stage, curve.seed
            if key in taken:
                raise UserError(
                    f"{folder}: the stage {key[0]!r} has seed {key[1]}, as in {taken[key]}; give "
                    "runs of other seeds."
                )
            taken[key] = folder
            other, theirs = data.setdefault(curve.stage, (folder, hashes))
            if (name := _first_difference(theirs, hashes)) is not None:
                raise UserError(
                    f"{folder} and {other}: the stage {curve.stage!r} is of other data "
                    f"({name}) in one than in the other; compare runs over the same data."
                )
            curves.append(curve)
    if not curves:
        raise UserError(
            f"{', '.join(map(str, folders))}: no stage was evaluated on dev while it trained; set "
            "args.eval_strategy and evaluate.dev, and run it again."
        )
    return curves


def _runs(folders: Sequence[Path]) -> list[tuple[Path, RunResults]]:
    """Read runs, which are to be of one recipe."""
    runs = [(folder, _run(folder)) for folder in folders]
    first, recipe = folders[0], runs[0][1].recipe
    for folder, run in runs:
        if run.recipe != recipe:
            raise UserError(
                f"{folder} is a run of {run.recipe} and {first} one of {recipe}; compare runs of "
                "one recipe."
            )
    return runs


def _curve(stage: StageRecord, seed: int) -> Curve:
    metric = stage.metrics.get("dev")
    names = [metric] if metric else _SPEARMAN
    found = []
    for entry in stage.log:
        scores = [entry[f"eval_dev_{name}"] for name in names if f"eval_dev_{name}" in entry]
        if scores:
            score = round(100 * scores[0], 4)
            found.append(Evaluation(int(entry["step"]), entry["train_seconds"], score))
    if found and found[0].step and "dev" in stage.spearman_start:
        found.insert(0, Evaluation(0, 0.0, stage.spearman_start["dev"]))
    return Curve(stage.name, seed, tuple(found), stage.spearman, stage.as_shipped, stage.metrics)


def _first_difference(some: Mapping[str, str], others: Mapping[str, str]) -> str | None:
    """Return what two runs have read differently; None where they agree.

    A test set of some runs only is left out of the means.
    """
    differing = [name for name in others if some.get(name, others[name]) != others[name]]
    differing += [name for name in _OF_SOME if (name in some) != (name in others)]
    return next(iter(differing), None)


def _run(folder: Path) -> RunResults:
    path = folder / "results.json"
    if not path.is_file():
        raise UserError(
            f"{folder}: no {path.name} there; give the output folder of a run of st-train."
        )
    return read(RunResults, path, "restore it, or run the recipe again")


def _check_scores(curve: Curve, folder: Path) -> None:
    for step, _, score in curve.evaluations:
        if not abs(score) <= 100:  # NaN is none either.
            raise UserError(
                f"{folder / 'results.json'}: the score of the stage {curve.stage!r} on dev at step "
                f"{step} is {score}, which is no correlation and no share; leave the run out, or "
                "train it again."
            )
