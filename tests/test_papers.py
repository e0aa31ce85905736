"""The papers' part is a plug-in: without its folder and its entry points the rest works."""

import importlib.metadata
import json
import shutil
import tomllib
from pathlib import Path

import pytest
from conftest import make_pairs, make_sentences, save_encoder, write_rows
from processes import run_code

ROOT = Path(__file__).parents[1]
PAPERS = "st_jtcse.papers"
# What a user of the rest does, in a process that finds the copy first.
RUN = """
import json, pkgutil, sys
from importlib import import_module

copy, project = sys.argv[1:]
sys.path.insert(0, copy)
import st_jtcse

assert st_jtcse.__file__.startswith(copy)
found = {"imported": 0}
for module in pkgutil.walk_packages(st_jtcse.__path__, "st_jtcse."):
    import_module(module.name)
    found["imported"] += 1

from st_jtcse.cli import eval, push, train
from st_jtcse.losses.catalogue import loss_names

small = [f"cache_dir={project}/cache", "args.use_cpu=true", "args.max_steps=1"]

def trained(recipe, folder, *options):
    own = [part for setting in small for part in ("--set", setting)]
    return train.main([recipe, "--output-dir", f"{project}/{folder}", *own, *options])

found["list"] = train.main(["--list"])
own = [f"model={project}/encoder", "model.pooling=mean", f"data.train={project}/text.txt"]
own = [part for setting in own for part in ("--set", setting)]
found["adapt"] = trained("adapt", "adapted", *own, "--dry-run")
found["twin"] = trained(f"{project}/twin.yaml", "twin")
found["pairs"] = trained(f"{project}/pairs.yaml", "pairs")
found["eval"] = eval.main([f"{project}/twin/joint", "--data", f"{project}/pairs.jsonl"])
found["push"] = push.main([f"{project}/twin/joint", "me/mine", "--dry-run"])
found["suite"] = eval.main([f"{project}/twin/joint", "--suite", "sts7"])
found["losses"] = loss_names()
found["papers"] = [name for name in sys.modules if name.startswith("st_jtcse.papers")]
print(json.dumps(found))
"""


@pytest.fixture
def copy(tmp_path):
    """The package as a wheel without the papers would install it."""
    place = tmp_path / "copy"
    shutil.copytree(
        ROOT / "st_jtcse",
        place / "st_jtcse",
        ignore=lambda folder, names: {"__pycache__", *({"papers"} & {*names})},
    )
    for data in ("recipes", "model_cards"):
        shutil.copytree(ROOT / data, place / "st_jtcse" / "bundled_data" / data)
    about = place / "st_jtcse-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: st-jtcse\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("")
    return place


def test_without_the_papers_the_rest_works(copy, tmp_path):
    project = tmp_path / "project"
    for seed, name in enumerate(("encoder", "other")):
        save_encoder(project / name, seed)
    (project / "text.txt").write_text("\n".join(dict.fromkeys(make_sentences(220))) + "\n")
    write_rows(project / "pairs.jsonl", make_pairs(40, 1))
    stages = {
        "twin": {
            "name": "joint",
            "model": {"towers": ["./encoder", "./other"], "pooling": "cls"},
            "data": {"train": "text.txt"},
            "loss": {"type": "JTCSELoss"},
        },
        "pairs": {
            "name": "ranked",
            "model": {"base": "./encoder", "pooling": "mean"},
            "data": {"pairs": "pairs.jsonl"},
            "loss": {"type": "CoSENTLoss"},
        },
    }
    for name, stage in stages.items():
        recipe = {"name": name, "stages": [stage]}
        (project / f"{name}.yaml").write_text(json.dumps(recipe))
    said = run_code(RUN, str(copy), str(project), folder=tmp_path)
    found = json.loads(said.splitlines()[-1])
    commands = ("list", "adapt", "twin", "pairs", "eval", "push")
    assert {name: found[name] for name in commands} == dict.fromkeys(commands, 0), said
    assert found["suite"] == 2 and "expected the name of a suite, found 'sts7'" in said
    assert "JTCSELoss" in found["losses"] and "ESimCSELoss" not in found["losses"]
    assert found["papers"] == [] and found["imported"] > 100


def test_what_the_papers_add_is_found_by_entry_points_alone():
    """Installed are those of pyproject.toml, and each names something of the papers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for group, named in project["entry-points"].items():
        points = importlib.metadata.entry_points(group=group)
        assert {name: point for name, point in named.items()} == {
            point.name: point.value for point in points if point.value.startswith(PAPERS)
        }
        for point in points:
            assert point.load().__module__.startswith(PAPERS)
