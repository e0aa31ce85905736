"""Seeds and sweeps: one recipe, several runs, one table."""

import json
import statistics

import pytest
import yaml
from conftest import save_encoder
from test_run import project  # noqa: F401  # a fixture

from st_jtcse.cli.train import main
from st_jtcse.recipe.load import load_recipe
from st_jtcse.training.sweep import plan_runs

pytestmark = pytest.mark.usefixtures("unrehearsed")


def sweep(project, *options, **keys):  # noqa: F811
    recipe = yaml.safe_load((project / "recipe.yaml").read_text()) | keys
    recipe["args"] |= {"max_steps": 2, "eval_steps": 2}
    (project / "sweep.yaml").write_text(json.dumps(recipe))
    return main([str(project / "sweep.yaml"), *options])


def weights(project, *parts):  # noqa: F811
    return project.joinpath("run", *parts, "model.safetensors")


def test_seeds_are_runs_of_their_own_and_one_table(project, capsys):  # noqa: F811
    assert sweep(project, "--stage", "encoder", seeds="3..4") == 0
    assert sorted(path.name for path in (project / "run").iterdir()) == [
        "recipe.yaml", "seed-3", "seed-4", "sweep.json", "sweep.png", "sweep.svg",
    ]  # fmt: skip
    assert "encoder" in capsys.readouterr().out
    told = json.loads((project / "run" / "sweep.json").read_text())
    assert [run["seed"] for run in told["runs"]] == [3, 4] and [
        run["folder"] for run in told["runs"]
    ] == [
        "seed-3",
        "seed-4",
    ]
    row = told["stages"][0]
    single = [
        json.loads((project / "run" / f"seed-{seed}" / "results.json").read_text())["stages"][0][
            "spearman"
        ]["test"]
        for seed in (3, 4)
    ]
    assert row["stage"] == "encoder" and row["values"]["test"] == single
    assert row["scores"]["test"] == [statistics.fmean(single), statistics.stdev(single)]
    # A seed of the sweep is that seed alone.
    assert main([str(project / "sweep.yaml"), "--set", "seeds=", "--set", "seed=3", "--stage", "encoder",
                 "--output-dir", str(project / "alone")]) == 0  # fmt: skip
    alone = (project / "alone" / "encoder" / "model.safetensors").read_bytes()
    assert alone == weights(project, "seed-3", "encoder").read_bytes()


def test_a_stage_that_the_sweep_leaves_alone_is_trained_once(project, capsys):  # noqa: F811
    for seed, name in ((1, "a"), (2, "b")):
        save_encoder(project / name, seed)
    keys = {
        "stages.joint.model.cross_attention_every": [1, 2],
        "stages.joint.args.learning_rate": [1e-3],
    }
    assert sweep(project, sweep=keys) == 0
    first, second = (
        json.loads((project / "run" / at / "seed-7" / "results.json").read_text())
        for at in ("01", "02")
    )
    assert first["finished"] and second["finished"]
    assert first["stages"][0] == second["stages"][0]
    assert weights(project, "01", "seed-7", "encoder").samefile(
        weights(project, "02", "seed-7", "encoder")
    )
    one, other = (weights(project, at, "seed-7", "joint").read_bytes() for at in ("01", "02"))
    assert one != other
    rows = json.loads((project / "run" / "sweep.json").read_text())["stages"]
    assert {row["stage"] for row in rows} == {"joint", "distilled"}
    assert [row["point"] for row in rows][:2] == [
        "cross_attention_every 1, learning_rate 0.001",
        "cross_attention_every 2, learning_rate 0.001",
    ]
    capsys.readouterr()
    # Nothing is left to do, so nothing changes.
    before = weights(project, "02", "seed-7", "joint").stat().st_mtime_ns
    assert main([str(project / "sweep.yaml"), "--resume"]) == 0
    assert weights(project, "02", "seed-7", "joint").stat().st_mtime_ns == before
    assert main([str(project / "sweep.yaml")]) == 2
    assert (
        "holds a run of this recipe already; continue it with --resume" in capsys.readouterr().err
    )


def test_a_dry_run_tells_the_runs_and_writes_nothing(project, capsys):  # noqa: F811
    assert (
        sweep(project, "--dry-run", seeds=[1, 2], sweep={"args.learning_rate": [1e-4, 1e-5]}) == 0
    )
    assert not (project / "run").exists()
    out = capsys.readouterr().out
    assert all(
        f"{at}/seed-{seed}" in out.replace("\n", "") for at in ("01", "02") for seed in (1, 2)
    )


def test_blocks_are_swept_one_after_the_other(project, capsys):  # noqa: F811
    blocks = [
        {},
        {"args.learning_rate": [1e-4, 1e-5], "args.weight_decay": [0.1]},
        {"args.weight_decay": [0.2]},
    ]
    (project / "recipe.yaml").write_text(
        json.dumps(yaml.safe_load((project / "recipe.yaml").read_text()) | {"sweep": blocks})
    )
    loaded = load_recipe(str(project / "recipe.yaml"))
    runs = plan_runs(loaded, str(project / "recipe.yaml"))
    assert [run.point for run in runs] == [
        "as written",
        "learning_rate 0.0001, weight_decay 0.1",
        "learning_rate 1e-05, weight_decay 0.1",
        "weight_decay 0.2",
    ]
    assert [run.loaded.recipe.args.get("weight_decay") for run in runs] == [None, 0.1, 0.1, 0.2]
    assert [run.folder.parent.name for run in runs] == ["01", "02", "03", "04"]


def test_swept_files_start_at_the_recipes_folder(project):  # noqa: F811
    (project / "other.txt").write_text((project / "text.txt").read_text())
    assert (
        sweep(project, "--dry-run", sweep={"data.train": [["text.txt"], ["text.txt", "other.txt"]]})
        == 0
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sweep": {"stages.joint.loss.ictm_wight": [1]}}, "did you mean 'ictm_weight'?"),
        ({"sweep": {"stages.nowhere.args.learning_rate": [1]}}, "sweep.stages.nowhere.args.learning_rate: expected"),
        ({"sweep": {"args.learning_rate": ["fast"]}}, "found 'fast'"),
        ({"sweep": {"args.learning_rate": []}}, "expected a list of at least 1"),
        ({"sweep": {"args.learning_rate": [1e-5, 1e-5]}}, "lists the same run twice (learning_rate "
                                                          "1e-05, seed 7)"),
        ({"seeds": [1, 1]}, "lists the same run twice (as written, seed 1)"),
        ({"sweep": "all"}, "expected a mapping"),
        ({"seeds": "5..1"}, "expected a list of at least 1"),
        ({"seeds": "all"}, "expected a list"),
        ({"seeds": "1..999999999"}, "expected at most 10,000 seeds, found 999,999,999. Write fewer."),
    ],
)  # fmt: skip
def test_faults_are_told_before_anything_runs(project, capsys, keys, message):  # noqa: F811
    assert sweep(project, **keys) == 2
    assert message.lower() in capsys.readouterr().err.lower()
    assert not (project / "run").exists()
