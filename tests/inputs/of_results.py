"""Files that earlier runs left, damaged since."""

from inputs.row import Row

CONVERGENCE = "st-convergence run --output-dir out"
STAGE = (
    '{"name": "one", "spearman": {}, "data_sha256": {}, "log": [{"step": 1, "train_seconds": '
    '1, "eval_dev_spearman": '
)


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
        "run/results.json: not the results of st-train",
    ),
    run("results that are empty", "", "run/results.json: not the results of st-train"),
    run(
        "results that are no text", b"\xff\xfe\x00", "run/results.json: not the results of st-train"
    ),
    run("results of something else", "[1, 2]", "run/results.json: not the results of st-train"),
    run(
        "results nested 200,000 deep",
        "[" * 200_000,
        "run/results.json: not the results of st-train",
    ),
    run(
        "results without a seed",
        '{"recipe": "t", "stages": []}',
        "not the results of st-train (seed: Field required)",
    ),
    run(
        "results without a score",
        '{"recipe": "t", "seed": 1, "stages": []}',
        "run: no stage was evaluated on dev",
    ),
    run(
        "results with a score that is NaN",
        '{"recipe": "t", "seed": 1, "stages": [' + STAGE + "NaN}]}]}",
        "the score of the stage 'one' on dev at step 1 is nan",
    ),
    Row(
        "runs of two recipes",
        "st-convergence {run} run --output-dir out",
        "compare runs of one recipe.",
        files={"run/results.json": '{"recipe": "other", "seed": 2, "stages": []}'},
    ),
    evaluated(
        "an evaluation that is cut off",
        '{"model": {"na',
        "--output-dir: out is not empty; choose another folder.",
    ),
    evaluated(
        "an evaluation of another shape",
        '{"model": {"name": "a", "sha256": "b"}, "suites": 5}',
        "--output-dir: out is not empty; choose another folder.",
    ),
    evaluated(
        "an evaluation nested 200,000 deep",
        "[" * 200_000,
        "--output-dir: out is not empty; choose another folder.",
    ),
    evaluated(
        "an evaluation of another model",
        '{"model": {"name": "other", "sha256": "0123456789"}, "suites": {}, "tasks": {}, '
        '"missing": {}}',
        "out holds the results of another model (other, 01234567",
    ),
    Row(
        "a run of another recipe",
        "st-train {recipe} --output-dir out --resume",
        "out holds the run of another recipe",
        files={"out/recipe.yaml": "name: other\n"},
    ),
    Row(
        "a run's recipe that is no text",
        "st-train {recipe} --output-dir out --resume",
        "out/recipe.yaml",
        files={"out/recipe.yaml": b"\xff\xfe"},
    ),
]
