"""Twins trained without the LayerNorms of their last layers (JTCSE Fig. 8), and evaluations at the
ends of epochs.
"""

import numpy as np
import pytest
from conftest import save_encoder
from sentence_transformers import SentenceTransformer
from test_run import results, train
from test_stages import ENCODER, TWIN, project, write  # noqa: F401
from torch import nn

from st_jtcse.cli.train import main
from st_jtcse.errors import UserError
from st_jtcse.modules.twin_encoder import split_twin

JOINT = TWIN | {"loss": {"type": "JTCSELoss", "cross_weight": 0.0, "nce_weight": 0.0}}


def bare(count):
    return JOINT | {"model": TWIN["model"] | {"bare_layers": count}}


@pytest.mark.usefixtures("unrehearsed")
def test_a_twin_without_its_last_layer_norms_is_saved_as_it_was_trained(project):  # noqa: F811
    write(project, bare(1) | {"name": "one"}, bare(0) | {"name": "none"})
    assert train(project) == 0
    one, none = (SentenceTransformer(str(project / "run" / name)) for name in ("one", "none"))
    places = [type(layer.output.LayerNorm) for layer in one[0].model.towers[1].encoder.layer]
    assert places[-1] is nn.Identity and nn.LayerNorm in places[:-1]
    assert one[0].model.config.bare_layers == 1 and none[0].model.config.bare_layers == 0
    # A normalised state of H values has a norm near the root of H; a bare one has its own.
    texts = ["A cat sleeps.", "It rains."]
    norms = [np.linalg.norm(model.encode(texts), axis=1) for model in (one, none)]
    assert not np.allclose(*norms, rtol=0.2)
    with pytest.raises(UserError, match="cannot be taken apart"):
        split_twin(project / "run" / "one", project / "split")
    # The modulus term reads the towers' states, not their poolers', from the first step on.
    logs = [
        [entry for entry in stage["log"] if "ictm" in entry] for stage in results(project)["stages"]
    ]
    assert abs(logs[0][0]["ictm"] - logs[1][0]["ictm"]) > 1e-3


def test_bare_layers_want_towers_that_have_them(project, capsys):  # noqa: F811
    write(project, ENCODER | {"model": ENCODER["model"] | {"bare_layers": 1}})
    assert main([str(project / "recipe.yaml"), "--dry-run"]) == 2
    assert "expected 'towers' beside 'bare_layers', found none." in capsys.readouterr().err
    write(project, bare(30))
    assert main([str(project / "recipe.yaml")]) == 2
    assert "layers, found 30" in capsys.readouterr().err


@pytest.mark.usefixtures("unrehearsed")
def test_a_stage_is_evaluated_at_the_ends_of_epochs_too(project):  # noqa: F811
    save_encoder(project / "a", 1)
    stages = [ENCODER | {"name": "steps"}, ENCODER | {"name": "both", "evaluate_epochs": True}]
    # Epochs of five steps, of which the second ends at a step that is evaluated anyway.
    write(project, *stages, max_steps=12, eval_steps=10, eval_strategy="steps")
    assert train(project) == 0
    found = [
        [entry["step"] for entry in stage["log"] if "eval_dev_spearman_cosine" in entry]
        for stage in results(project)["stages"]
    ]
    assert found == [[10, 12], [5, 10, 12]]


def test_a_dry_run_of_a_later_stage_wants_the_earlier_ones(project, capsys):  # noqa: F811
    joint = JOINT | {"model": {"towers": ["stage:encoder", "./b"], "pooling": "cls"}}
    write(project, ENCODER, joint)
    later = ["--stage", "twin", "--resume", "--dry-run"]
    assert train(project, *later) == 2
    told = "'twin' starts from stage:encoder, which is not finished in"
    assert told in capsys.readouterr().err
    assert train(project, "--stage", "encoder") == 0
    assert train(project, *later) == 0
