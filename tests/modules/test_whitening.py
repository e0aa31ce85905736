"""Whitening: what it does to the text that it was fitted on, and that its model loads without this
package.
"""

import json

import numpy as np
import pytest
import torch
from conftest import make_model, make_sentences, save_encoder
from sentence_transformers import SentenceTransformer

from st_jtcse.cli.train import main
from st_jtcse.errors import UserError
from st_jtcse.modules import whitening_of


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whitening")
    save_encoder(folder / "a", 1, num_hidden_layers=2)
    (folder / "text.txt").write_text("\n".join(make_sentences(90)) + "\n")
    return folder


def write(project, whitening, *more, **stage):
    first = {
        "name": "white",
        "model": {"base": "./a", "pooling": "mean"},
        "loss": None,
        "whitening": whitening,
        **stage,
    }
    recipe = {
        "name": "tiny",
        "data": {"train": "text.txt"},
        "args": {"use_cpu": True},
        "stages": [first, *more],
    }
    (project / "recipe.yaml").write_text(json.dumps(recipe))
    return [str(project / "recipe.yaml"), "--output-dir", str(project / "run")]


def test_a_stage_whitens_its_text_and_a_later_one_learns_the_fewer_dimensions(project):
    student = {
        "name": "student",
        "model": {"base": "stage:white"},
        "loss": {"type": "SimCSELoss"},
        "args": {"max_steps": 1},
    }
    assert main(write(project, {"dimensions": 8}, student)) == 0
    model = SentenceTransformer(str(project / "run" / "white"), device="cpu")
    found = model.encode(make_sentences(90)).astype(np.float64)
    assert found.shape == (90, 8) and np.abs(found.mean(axis=0)).max() < 1e-4
    assert np.abs(np.cov(found.T, bias=True) - np.eye(8)).max() < 1e-4
    trained = SentenceTransformer(str(project / "run" / "student"), device="cpu")
    assert trained.get_embedding_dimension() == 8
    # Modules of Sentence-Transformers alone, which give the encoder's own embeddings by a linear
    # layer.
    listing = json.loads((project / "run" / "white" / "modules.json").read_text())
    assert (
        all(module["type"].startswith("sentence_transformers.") for module in listing)
        and len(listing) == 3
    )
    assert isinstance(model[2].activation_function, torch.nn.Identity)
    plain = torch.from_numpy(make_model(project / "a", "mean").encode(make_sentences(90)))
    np.testing.assert_allclose(found, model[2].linear(plain).detach().numpy(), rtol=0, atol=1e-4)


def test_the_layer_is_the_equation_and_the_text_may_come_in_batches():
    torch.manual_seed(0)
    rows = torch.randn(500, 16) @ torch.randn(16, 16) + 5 * torch.randn(16)
    layer = whitening_of(rows.split(64), 5)
    white = layer.linear(rows).detach().double()
    assert (
        white.T @ white / 500 - torch.eye(5)
    ).abs().max() < 1e-4 and layer.linear.bias.shape == (5,)
    torch.testing.assert_close(whitening_of([rows], 5).linear.weight, layer.linear.weight)
    # The largest variances: no other direction explains as much.
    centred = (rows - rows.mean(0)).double()
    kept = torch.linalg.qr(layer.linear.weight.detach().double().T).Q
    strongest = torch.linalg.svdvals(centred)[:5].square().sum()
    torch.testing.assert_close((centred @ kept).square().sum(), strongest, rtol=1e-6, atol=0)


def test_a_text_that_varies_in_few_directions_is_refused_for_more():
    flat = torch.randn(50, 3, generator=torch.Generator().manual_seed(1)) @ torch.eye(3, 6)
    with pytest.raises(UserError, match="vary in 3 directions only; whiten to 3 dimensions"):
        whitening_of([flat], 4)
    assert whitening_of([flat], 3).linear.weight.isfinite().all()


@pytest.mark.parametrize(
    ("whitening", "stage", "message"),
    [
        ({}, {"data": {"train": {"file": "text.txt", "limit": 20}}}, "to 32 dimensions needs 33 "
                                                                     "different sentences"),
        ({"dimensions": 33}, {}, "whitening.dimensions is 33, the embedding's 32; lower it."),
        ({}, {"loss": {"type": "SimCSELoss"}}, "'loss: null' beside 'whitening', found a loss. "
                                               "Remove"),
        ({}, {"model": {"cross_encoder": "./a"}}, "beside 'whitening', found a cross-encoder. "
                                                  "Remove"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_whitened_leaves_nothing_behind(
    project, tmp_path, capsys, whitening, stage, message
):
    assert main([*write(project, whitening, **stage)[:2], str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()
