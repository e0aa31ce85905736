"""The documented way to a loss of one's own, followed: install, name it in a recipe, train; and
what can go wrong.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import make_sentences, save_encoder

from st_jtcse.cli.train import main
from st_jtcse.errors import UserError
from st_jtcse.losses.catalogue import loss_class, loss_names

PAGE = Path(__file__).parents[1] / "docs" / "own-loss.md"
FILES = dict(
    re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package of the page, installed into a folder of its own."""
    project, target = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "my_losses.py"):
        (project / name).write_text(FILES[name])
    command = [
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--target",
        str(target),
    ]
    subprocess.run([sys.executable, "-m", "pip", *command, str(project)], check=True)
    return target


@pytest.fixture
def project(installed, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(installed))
    save_encoder(tmp_path / "encoder", 1)
    (tmp_path / "text.txt").write_text("\n".join(make_sentences(40)) + "\n")
    (tmp_path / "recipe.yaml").write_text(
        FILES["recipe.yaml"].replace("embedded", "./encoder, pooling: cls")
    )
    return tmp_path


def train(project, *settings):
    options = [part for setting in (f"cache_dir={project}/cache", "args.use_cpu=true", *settings)
               for part in ("--set", setting)]  # fmt: skip
    return main([str(project / "recipe.yaml"), "--output-dir", str(project / "run"), *options])


def test_the_documented_loss_trains_by_its_name(project):
    assert train(project) == 0
    record = json.loads((project / "run" / "results.json").read_text())["stages"][0]
    assert record["steps"] == 2 and record["loss"] == {"type": "PullLoss", "strength": 2.0}
    assert "PullLoss" in (project / "run" / "student" / "README.md").read_text()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("stages.student.loss.strength=0", "loss.strength: expected a number above 0, found 0."),
        (
            "stages.student.loss.strenght=1",
            "expected an argument of PullLoss, found 'strenght'. Did you mean",
        ),
        ("stages.student.loss.type=PulLoss", "found 'PulLoss'. Did you mean 'PullLoss'?"),
        (
            "stages.student.teachers=[]",
            "expected the models that PullLoss learns from, found none.",
        ),
        (
            "args.per_device_train_batch_size=1",
            "PullLoss compares the sentences of a batch, found batches of 1",
        ),
    ],
)
def test_it_is_checked_as_ours_are(project, capsys, setting, message):
    assert train(project, setting) == 2
    assert message in capsys.readouterr().err
    assert not (project / "run").exists()


def test_a_package_that_does_not_import_is_named_and_the_others_work(tmp_path, monkeypatch):
    (tmp_path / "broken-1.0.dist-info").mkdir()
    (tmp_path / "broken-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n"
    )
    entry = "[st_jtcse.losses]\nBrokenLoss = broken_losses:BrokenLoss\n"
    (tmp_path / "broken-1.0.dist-info" / "entry_points.txt").write_text(entry)
    (tmp_path / "broken_losses.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "BrokenLoss" in loss_names()
    with pytest.raises(
        UserError,
        match="'BrokenLoss' at 'broken_losses:BrokenLoss', which fails with ModuleNotFound",
    ):
        loss_class("BrokenLoss")
    assert loss_class("SimCSELoss").__name__ == "SimCSELoss"
