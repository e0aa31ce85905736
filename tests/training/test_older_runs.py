"""Runs that earlier versions left are gone on with; tests/assets/README.md says how they were made."""

import json
import shutil
from pathlib import Path

import pytest

from st_jtcse.cli.train import main
from st_jtcse.hashing import weight_files_sha256

RUNS = sorted((Path(__file__).parents[1] / "assets").glob("*/interrupted_run"))


@pytest.mark.parametrize("saved", RUNS, ids=lambda path: path.parent.name)
def test_an_older_run_keeps_what_is_finished_and_starts_its_stage_anew(
    saved, tmp_path, monkeypatch, caplog
):
    project = Path(shutil.copytree(saved, tmp_path / "project"))
    recipe = project / "run" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("/PROJECT", str(project)))
    monkeypatch.chdir(project)
    finished = json.loads((project / "run" / "encoder" / "training_results.json").read_text())
    assert main(["recipe.yaml", "--resume"]) == 0
    encoder, joint = json.loads((project / "run" / "results.json").read_text())["stages"]
    assert encoder == finished and encoder["weights_sha256"] == weight_files_sha256(
        project / "run" / "encoder"
    )
    # Its checkpoint has no manifest, so that nothing vouches for it.
    assert (
        "checkpoint-2 (checkpoint_manifest.json is missing); the stage starts from its beginning"
        in caplog.text
    )
    assert joint["steps"] == 4 and joint["weights_sha256"] == weight_files_sha256(
        project / "run" / "joint"
    )
    assert not list((project / "run").glob("*/checkpoint-*"))
