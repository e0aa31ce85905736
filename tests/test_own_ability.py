"""The documented way to an ability of one's own, followed: install, use its key, train, be cut off
and resume; and what can go wrong.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import WORDS, save_encoder
from processes import run_code

PAGE = Path(__file__).parents[1] / "docs" / "own-ability.md"
FILES = dict(
    re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
)
# What a process does that has the package installed: abilities are found once, at the first look.
RUN = """
import json, sys

project, installed = sys.argv[1:]
sys.path.insert(0, installed)
from st_jtcse.cli.train import main
from st_jtcse.training.callbacks import TrainingTime

def train(run, *options):
    common = ["--output-dir", f"{project}/{run}", "--set", "args.use_cpu=true"]
    return main([f"{project}/recipe.yaml", *common, "--set", f"cache_dir={project}/cache", *options])

def setting(text):
    return train("refused", "--set", f"stages.encoder.{text}")

found = {"dry": train("dry", "--dry-run"), "straight": train("straight")}
step_end = TrainingTime.on_step_end

def stop(self, args, state, control, **given):
    if state.global_step == 3:
        raise KeyboardInterrupt
    step_end(self, args, state, control, **given)

TrainingTime.on_step_end = stop
found["cut"] = train("cut", "--set", "args.save_steps=2")
TrainingTime.on_step_end = step_end
found["resumed"] = train("cut", "--set", "args.save_steps=2", "--resume")
for text in ("word_limits.fewest=0", "word_limits.fewest=12", "word_limit=1", "loss=null",
             "broken=1"):
    found[text] = setting(text)
with open(f"{project}/found.json", "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package of the page, installed into a folder, and beside it one that does not import."""
    project, target = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "word_limits.py"):
        (project / name).write_text(FILES[name])
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", target]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, project], check=True)
    broken = target / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text("[st_jtcse.abilities]\nbroken = no_such_module:Some\n")
    return target


@pytest.fixture(scope="module")
def project(installed, tmp_path_factory):
    """The recipe's runs, and what each ended with."""
    folder = tmp_path_factory.mktemp("runs")
    save_encoder(folder / "encoder", 1)
    lines = [
        " ".join(WORDS[:count]) + f" {WORDS[-at]}" for count in (1, 4, 11) for at in range(1, 13)
    ]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    recipe = FILES["recipe.yaml"].replace("embedded", "./encoder, pooling: cls")
    (folder / "recipe.yaml").write_text(recipe)
    said = run_code(RUN, str(folder), str(installed), folder=folder)
    return folder, json.loads((folder / "found.json").read_text()), " ".join(said.split())


def record(folder, run):
    return json.loads((folder / run / "encoder" / "training_results.json").read_text())


def test_it_trains_and_is_told_in_record_and_card(project):
    folder, found, _ = project
    assert (found["dry"], found["straight"]) == (0, 0) and not (folder / "dry").exists()
    # Of 36 sentences a third has two words, a third five, and a third twelve.
    straight = record(folder, "straight")
    assert (straight["sentences"], straight["left_out_by_length"], straight["steps"]) == (12, 24, 4)
    card = (folder / "straight" / "encoder" / "README.md").read_text()
    assert "24 sentences were left out for their length." in card
    assert "word_limits:\n    fewest: 4\n    most: 9" in card


def test_a_run_that_is_cut_off_resumes_to_the_same_bytes(project):
    folder, found, _ = project
    assert (found["cut"], found["resumed"]) == (130, 0)
    straight, resumed = record(folder, "straight"), record(folder, "cut")
    assert resumed["weights_sha256"] == straight["weights_sha256"]
    assert resumed["left_out_by_length"] == 24


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "word_limits.fewest=0",
            "word_limits.fewest: expected a number of at least 1, found 0. Correct it (The fewest "
            "words of a sentence).",
        ),
        ("word_limits.fewest=12", "expected at most 9, the most words, found 12. Lower it."),
        ("word_limit=1", "found 'word_limit'. Did you mean 'word_limits'?"),
        ("loss=null", "expected a loss beside 'word_limits', found null."),
        (
            "broken=1",
            "expected an ability that can be imported, found 'broken' at 'no_such_module:Some', "
            "which fails with ModuleNotFoundError",
        ),
    ],
)
def test_its_key_is_checked_as_ours_are(project, setting, message):
    folder, found, said = project
    assert found[setting] == 2 and message in said
    assert not (folder / "refused").exists()
