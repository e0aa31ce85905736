"""st-convergence on runs of tiny models."""

import json
import math

import pytest
from conftest import make_sentences, run_results, save_encoder

from st_jtcse.cli.train import main as train
from st_jtcse.errors import UserError
from st_jtcse.ownership import LIST
from st_jtcse.papers.cli.convergence import main
from st_jtcse.reports.dev_curves import Curve, Evaluation, read_curves
from st_jtcse.reports.seed_reports import common_score, convergence


def curve(stage, seed, *points, **final):
    return Curve(stage, seed, tuple(Evaluation(*point) for point in points), final)


CURVES = [
    curve("cosent", 1, (0, 0.0, 60.0), (10, 2.0, 71.0), (20, 4.0, 80.0), test=70.0),
    curve("cosent", 2, (0, 0.0, 60.0), (10, 3.0, 69.0), (20, 5.0, 78.0), test=74.0),
    curve("mse", 1, (0, 0.0, 60.0), (10, 1.0, 65.0), (20, 2.0, 69.5), test=66.0),
]


def test_steps_and_seconds_to_a_score():
    assert common_score(CURVES) == 69.5
    cosent, mse = convergence(CURVES, 70.0)
    assert (cosent.stage, cosent.seeds, cosent.reached) == ("cosent", 2, 2)
    assert cosent.steps == (15.0, math.sqrt(50)) and cosent.seconds == (3.5, math.sqrt(4.5))
    assert cosent.final == {"test": (72.0, math.sqrt(8))}
    assert (mse.reached, mse.steps, mse.seconds, mse.final) == (
        0,
        None,
        None,
        {"test": (66.0, None)},
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two stages under two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    save_encoder(folder / "a", 1)
    left, right = make_sentences(40, seed=5), make_sentences(40, seed=6)
    lines = [
        {"sentence1": a, "sentence2": b, "score": i % 6}
        for i, (a, b) in enumerate(zip(left, right))
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    stage = {"model": {"base": "./a", "pooling": "mean"}}
    recipe = {
        "name": "tiny",
        "output_dir": "unused",
        "data": {"pairs": "pairs.jsonl"},
        "evaluate": {"dev": "pairs.jsonl", "test": {"test": "pairs.jsonl"}},
        "args": {
            "max_steps": 6,
            "learning_rate": 1e-3,
            "eval_strategy": "steps",
            "eval_steps": 2,
            "use_cpu": True,
            "disable_tqdm": True,
        },
        "stages": [
            stage | {"name": "cosent", "loss": {"type": "CoSENTLoss"}},
            stage | {"name": "mse", "loss": {"type": "CosineSimilarityLoss"}},
        ],
    }
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    for seed in (1, 2):
        assert (
            train(
                [
                    str(folder / "recipe.yaml"),
                    "--set",
                    f"seed={seed}",
                    "--output-dir",
                    str(folder / f"s{seed}"),
                ]
            )
            == 0
        )
    return folder


def test_the_curves_of_a_run_are_those_of_its_log(runs):
    curves = read_curves([runs / "s1", runs / "s2"])
    assert [(curve.stage, curve.seed) for curve in curves] == [
        ("cosent", 1),
        ("mse", 1),
        ("cosent", 2),
        ("mse", 2),
    ]
    record = json.loads((runs / "s1" / "results.json").read_text())["stages"][0]
    assert [evaluation.step for evaluation in curves[0].evaluations] == [0, 2, 4, 6]
    assert curves[0].evaluations[0].score == record["spearman_start"]["dev"]
    # The best evaluation chose the saved model, which was scored again.
    assert curves[0].best == pytest.approx(
        max(record["spearman"]["dev"], record["spearman_start"]["dev"]), abs=0.01
    )
    seconds = [evaluation.seconds for evaluation in curves[0].evaluations]
    assert seconds == sorted(seconds) and 0 < seconds[-1] <= record["seconds"]


def test_the_report_holds_numbers_and_pictures(runs, tmp_path, capsys):
    folders = [str(runs / "s1"), str(runs / "s2")]
    assert main([*folders, "--score", "1", "--output-dir", str(tmp_path / "one")]) == 0
    assert main([*folders, "--score", "1", "--output-dir", str(tmp_path / "two")]) == 0
    assert "cosent" in capsys.readouterr().out
    names = ["convergence.json", "convergence.png", "convergence.svg"]
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [LIST, *names]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    told = json.loads((tmp_path / "one" / "convergence.json").read_text())
    assert told["score"] == 1 and [row["seeds"] for row in told["stages"]] == [2, 2]
    svg = (tmp_path / "one" / "convergence.svg").read_text()
    assert all(
        f"<!-- {label} -->" in svg for label in ("steps", "training (s)", "cosent", "mse", "test")
    )


def test_faults_are_one_sentence(runs, tmp_path, capsys):
    def told(*arguments):
        assert main([*arguments, "--output-dir", str(tmp_path / "report")]) == 2
        assert not (tmp_path / "report").exists()
        return capsys.readouterr().err

    assert "no results.json there; give the output folder of a run" in told(str(tmp_path))
    assert "the stage 'cosent' has seed 1, as in" in told(str(runs / "s1"), str(runs / "s1"))
    (tmp_path / "results.json").write_text(json.dumps(run_results("other", 9)))
    assert f"{tmp_path} is a run of other and {runs / 's1'} one of" in told(
        str(runs / "s1"), str(tmp_path)
    )
    (tmp_path / "results.json").write_text("[]")
    assert "not the results of st-train" in told(str(tmp_path))
    (tmp_path / "results.json").write_text(json.dumps(run_results("tiny", 1)))
    assert "no stage was evaluated on dev while it trained" in told(str(tmp_path))


def changed(runs, folder, change):
    """The first run's results under another seed, with a change to its first stage's record."""
    folder.mkdir(exist_ok=True)
    told = json.loads((runs / "s1" / "results.json").read_text()) | {"seed": 3}
    change(told["stages"][0])
    (folder / "results.json").write_text(json.dumps(told))
    return folder


DAMAGED = " is damaged, or not the results of st-train"


def evaluated(record):
    return next(entry for entry in record["log"] if "eval_dev_spearman_cosine" in entry)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda record: evaluated(record).pop("train_seconds"),
            f"{DAMAGED} (stages[0].log[0]: expected 'train_seconds' of at least 0, found none); "
            "restore it, or run the recipe again.",
        ),
        (
            lambda record: record.pop("data_sha256"),
            f"{DAMAGED} (stages[0].data_sha256: expected a value, found none)",
        ),
        (
            lambda record: record["spearman"].update(test=None),
            f"{DAMAGED} (stages[0].spearman.test: expected a number, found null)",
        ),
        (
            lambda record: evaluated(record).update(eval_dev_spearman_cosine=math.nan),
            ": the score of the stage 'cosent' on dev at step 2 is nan, which is no correlation "
            "and no share; leave the run out",
        ),
        (
            lambda record: record["spearman"].update(test=math.nan),
            f"{DAMAGED} (stages[0].spearman.test: expected a finite number, found nan)",
        ),
    ],
)
def test_results_that_cannot_be_read_are_named(runs, tmp_path, change, message):
    with pytest.raises(UserError) as caught:
        read_curves([changed(runs, tmp_path / "run", change)])
    assert str(caught.value).startswith(f"{tmp_path / 'run' / 'results.json'}{message}")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"train": "0" * 64}, "train"),
        ({"test": "0" * 64}, "test"),
        ({"pair_scores": "0" * 64}, "pair_scores"),
    ],
)
def test_a_stage_of_other_data_is_refused(runs, tmp_path, change, name):
    other = changed(runs, tmp_path / "run", lambda record: record["data_sha256"].update(change))
    with pytest.raises(UserError) as caught:
        read_curves([runs / "s1", other])
    assert str(caught.value) == (
        f"{other} and {runs / 's1'}: the stage 'cosent' is of other data ({name}) in one than in "
        "the other; compare "
        "runs over the same data."
    )


def test_a_test_set_of_one_run_alone_is_no_other_data(runs, tmp_path):
    def more(record):
        record["data_sha256"]["more"] = "0" * 64
        record["spearman"]["more"] = 50.0

    curves = read_curves([runs / "s1", changed(runs, tmp_path / "run", more)])
    assert convergence(curves, 1.0)[0].final.keys() == {"dev", "test"}


def test_a_folder_that_cannot_be_written_is_named(runs, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main([str(runs / "s1"), "--output-dir", str(tmp_path / "file")]) == 2
    assert "--output-dir:" in capsys.readouterr().err
