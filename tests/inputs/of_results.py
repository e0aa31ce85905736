"""Files that earlier runs left, damaged since."""

import json

from conftest import run_results, stage_record

from inputs.row import Row

CONVERGENCE = "st-convergence run --output-dir out"
NOT_A_RUN = "run/results.json is damaged, or not the results of st-train"
NOT_AN_EVALUATION = "out/results.json is damaged, or not the results of st-eval"
NO_NUMBER = {"step": 1, "train_seconds": 1.0, "eval_dev_spearman": float("nan")}
EVALUATION = {
    "model": {
        "name": "other",
        "sha256": "0123456789",
        "files": {},
        "parameters": 1,
        "dimension": 1,
        "max_seq_length": 1,
    },
    "versions": {},
    "suites": {},
    "tasks": {},
    "missing": {},
}


def run(name, content, sentence):
    """The results of a run, for a report."""
    return Row(name, CONVERGENCE, sentence, files={"run/results.json": content})


def evaluated(name, content, sentence):
    """The results of an evaluation, to go on from."""
    command = "st-eval {model} --task senteval/CR --output-dir out"
    return Row(name, command, sentence, files={"out/results.json": content})


ROWS = [
    Row(
        "a run without results",
        CONVERGENCE,
        "run: no results.json there",
        files={"run/a.txt": "a\n"},
    ),
    Row("a run that is not there", CONVERGENCE, "run: no results.json there"),
    run(
        "results that are cut off",
        '{"recipe": "ti',
        NOT_A_RUN,
    ),
    run("results that are empty", "", NOT_A_RUN),
    run("results that are no text", b"\xff\xfe\x00", NOT_A_RUN),
    run("results of something else", "[1, 2]", NOT_A_RUN),
    run(
        "results nested 200,000 deep",
        "[" * 200_000,
        NOT_A_RUN,
    ),
    run(
        "results without a seed",
        '{"recipe": "t", "stages": []}',
        f"{NOT_A_RUN} (seed: expected a value, found none); restore it, or run the recipe again.",
    ),
    run(
        "results without a score",
        json.dumps(run_results("t", 1)),
        "run: no stage was evaluated on dev",
    ),
    run(
        "results with a score that is NaN",
        json.dumps(run_results("t", 1, stage_record("one", log=[NO_NUMBER]))),
        "the score of the stage 'one' on dev at step 1 is nan",
    ),
    Row(
        "runs of two recipes",
        "st-convergence {run} run --output-dir out",
        "compare runs of one recipe.",
        files={"run/results.json": json.dumps(run_results("other", 2))},
    ),
    evaluated(
        "an evaluation that is cut off",
        '{"model": {"na',
        "--output-dir: out is not empty; choose another folder.",
    ),
    evaluated(
        "an evaluation of another shape",
        json.dumps(EVALUATION | {"suites": 5}),
        f"{NOT_AN_EVALUATION} (suites: expected a mapping, found 5); restore it, or choose another",
    ),
    evaluated(
        "an evaluation nested 200,000 deep",
        "[" * 200_000,
        "--output-dir: out is not empty; choose another folder.",
    ),
    evaluated(
        "an evaluation of another model",
        json.dumps(EVALUATION),
        "out holds the results of another model (other, 01234567",
    ),
    Row(
        "a run of another recipe",
        "st-train {recipe} --output-dir out --resume",
        "out holds a run whose recipe cannot be read",
        files={"out/recipe.yaml": "name: other\n"},
    ),
    Row(
        "a run's recipe that is no text",
        "st-train {recipe} --output-dir out --resume",
        "out/recipe.yaml",
        files={"out/recipe.yaml": b"\xff\xfe"},
    ),
]
