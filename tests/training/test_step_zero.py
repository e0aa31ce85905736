"""A stage's start competes with what training makes of it, and patience ends a training that gains
nothing.
"""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from test_resume_checks import cut
from test_run import project, refusal, results, train  # noqa: F401  # project is a fixture

pytestmark = pytest.mark.usefixtures("unrehearsed")

ENCODER = ["--stage", "encoder"]
STANDS_STILL = ["--set", "args.learning_rate=1e-30", "--set", "args.max_steps=12"]


def record(project, folder="run"):  # noqa: F811
    return results(project, folder)["stages"][0]


def test_a_stage_that_only_falls_gives_its_start_back_and_says_so(project, capsys, caplog):  # noqa: F811
    assert (
        train(project, *ENCODER, "--set", "args.learning_rate=0.5", "--set", "args.max_steps=2")
        == 0
    )
    found = record(project)
    assert found["best_dev"] < found["spearman_start"]["dev"]
    assert found["best_step"] == 0 and found["steps"] == 2
    assert found["spearman"] == found["spearman_start"]
    start = SentenceTransformer(str(project / "a"))
    start[1].pooling_mode = "cls"
    texts = ["the dog runs", "a man reads the book"]
    kept = SentenceTransformer(str(project / "run" / "encoder"))
    assert np.array_equal(kept.encode(texts), start.encode(texts))
    assert any(
        "so the stage keeps the model it started from" in message for message in caplog.messages
    )
    assert "start kept" in capsys.readouterr().out


def test_a_stage_that_gains_is_its_best_step(project, capsys):  # noqa: F811
    assert (
        train(project, *ENCODER, "--set", "args.learning_rate=1e-4", "--set", "args.max_steps=2")
        == 0
    )
    found = record(project)
    if found["best_dev"] < found["spearman_start"]["dev"]:
        pytest.fail("the example does not gain; choose another rate")
    assert found["best_step"] == 2
    assert found["spearman"]["dev"] == found["best_dev"]
    assert "start kept" not in capsys.readouterr().out


def test_patience_stops_after_evaluations_without_gain(project):  # noqa: F811
    assert train(project, *ENCODER, *STANDS_STILL, "--set", "evaluate.patience=2") == 0
    # The first evaluation, at step 2, is the best; two more gain nothing.
    assert record(project)["steps"] == 6
    assert record(project)["best_step"] == 2


def test_a_stage_stopped_by_patience_and_cut_off_while_it_finishes_takes_no_further_step(project):  # noqa: F811
    options = [*STANDS_STILL, "--set", "evaluate.patience=1"]
    assert train(project, *ENCODER, *options, "--output-dir", str(project / "straight")) == 0
    cut(project, *options)
    assert train(project, *ENCODER, *options, "--resume") == 0
    assert record(project)["steps"] == record(project, "straight")["steps"] == 4
    assert record(project)["weights_sha256"] == record(project, "straight")["weights_sha256"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--set", "evaluate.dev=null"], "expected 'dev' beside 'patience'"),
        (["--set", "args.eval_strategy=no"], "evaluate.patience counts evaluations in training"),
        (["--set", "evaluate.patience=0"], "evaluate.patience"),
    ],
)
def test_patience_with_nothing_to_wait_for_is_refused(project, capsys, options, told):  # noqa: F811
    assert told in refusal(project, capsys, *ENCODER, "--set", "evaluate.patience=2", *options)
