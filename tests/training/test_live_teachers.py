"""Teachers that embed each batch anew give the loss that their kept vectors give."""

import json

import numpy as np
import pytest

from st_jtcse.cli.train import main


def train(project, loss, cache, args=None, **stage):
    recipe = {
        "name": "tiny",
        "output_dir": str(project / f"run-{cache}"),
        "cache_dir": str(project / "cache"),
        "data": {"train": "text.txt"},
        "args": {
            "max_steps": 3,
            "logging_steps": 1,
            "learning_rate": 1e-2,
            "use_cpu": True,
            "disable_tqdm": True,
        },
        "stages": [
            {
                "name": "one",
                "model": {"base": "./a", "pooling": "cls"},
                "loss": {"type": loss},
                **stage,
            }
        ],
    }
    recipe["args"] |= args or {}
    recipe["stages"][0]["teachers"] = [{"model": "./b", "pooling": "mean", "cache": cache}]
    (project / "recipe.yaml").write_text(json.dumps(recipe))
    return main([str(project / "recipe.yaml")])


def losses(project, cache):
    (stage,) = json.loads((project / f"run-{cache}" / "results.json").read_text())["stages"]
    return [entry["loss"] for entry in stage["log"] if "loss" in entry]


@pytest.mark.parametrize(("loss", "stage"), [("MSELoss", {}), ("RankCSELoss", {"views": "crop"})])
def test_the_loss_is_that_of_kept_vectors_and_nothing_is_kept(project, loss, stage):
    for cache in (False, True):
        assert train(project, loss, cache, **stage) == 0
        assert len(list(project.glob("cache/*"))) == cache
    # Half precision has eleven significant bits.
    np.testing.assert_allclose(losses(project, False), losses(project, True), rtol=2**-11)
    assert len(losses(project, True)) == 3 and len(set(losses(project, True))) == 3


@pytest.mark.parametrize(
    ("args", "stage", "key"),
    [
        ({"dataloader_num_workers": 1}, {}, "dataloader_num_workers"),
        ({}, {"evaluate": {"dev": "unlabelled"}}, "dev: unlabelled"),
        ({}, {"neighbours": {}}, "neighbours"),
    ],
)
def test_what_needs_kept_vectors_is_refused(project, capsys, args, stage, key):
    assert train(project, "MSELoss", False, args, **stage) == 2
    told = (
        f"expected true beside '{key}', which needs the embeddings beforehand, found false. "
        "Remove one."
    )
    assert told in capsys.readouterr().err
    assert not (project / "run-False").exists()
