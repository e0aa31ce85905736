"""The last layer for the first row alone against the whole computation, dropout included."""

import contextlib
import copy
import warnings

import pytest
import torch
from conftest import make_model, make_sentences, make_tokenizer, make_tower
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.losses import MSELoss
from sentence_transformers.sentence_transformer.modules import Dense, Pooling

from st_jtcse.losses import SimCSELoss, views
from st_jtcse.modules import TrainingHead
from st_jtcse.modules.first_row import first_row_alone

SENTENCES = make_sentences(6, seed=2)
RATES = {
    "modernbert": dict.fromkeys(("attention_dropout", "embedding_dropout", "mlp_dropout"), 0.1)
}


def rows_of_norms(model):
    """How many rows the last normalisation of each forward pass sees."""
    seen = []
    *_, norm = (module for module in model[0].modules() if isinstance(module, torch.nn.LayerNorm))
    norm.register_forward_hook(lambda module, given, output: seen.append(output.shape[1]))
    return seen


def gradients(model, loss, labels=None):
    torch.manual_seed(0)
    model.zero_grad()
    value = loss([model.preprocess(SENTENCES)], labels)
    value.backward()
    return value.detach(), {
        name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
    }


def agree(found, expected):
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-6)
    for name, gradient in expected[1].items():
        if gradient.any():
            torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    "kind", ["bert", "roberta", "electra", "mpnet", "distilbert", "modernbert"]
)
def test_loss_and_gradients_are_those_of_all_rows(kind, tmp_path, monkeypatch):
    make_tower(kind, 1, **RATES.get(kind, {})).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    model = make_model(tmp_path).train()
    model.append(TrainingHead(32, 32))
    seen = rows_of_norms(model)
    found = gradients(model, SimCSELoss(model))
    assert set(seen) == {1}
    monkeypatch.setattr(views, "first_row_alone", lambda model: contextlib.nullcontext())
    agree(found, gradients(model, SimCSELoss(model)))
    assert min(seen[len(seen) // 2 :]) > 1
    assert "forward" not in vars(model[0].model)


def test_a_student_of_vectors_reads_one_row_in_training_and_all_beside_it(tower_folders):
    model = make_model(tower_folders[0]).train()
    labels = torch.randn(6, 32, generator=torch.Generator().manual_seed(1))
    expected = gradients(model, MSELoss(model), labels)
    seen = rows_of_norms(model)
    with first_row_alone(model):
        agree(gradients(model, MSELoss(model), labels), expected)
        assert seen == [1]
        model.eval()(model.preprocess(SENTENCES))
    assert len(seen) == 2 and seen[1] > 1


def of(folder, *behind, pooling="cls", **kwargs):
    return SentenceTransformer(
        modules=[Transformer(str(folder), **kwargs), Pooling(32, pooling), *behind]
    )


def left(folder):
    model = of(folder)
    model.tokenizer.padding_side = "left"
    return model


def checkpointed(folder):
    model = of(folder)
    with warnings.catch_warnings():  # 2026-11: transformers 5.23 is about to rename it.
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable()
    return model


@pytest.mark.parametrize(
    "build",
    [
        lambda folder: of(folder, pooling="mean"),
        lambda folder: of(folder, Dense(32, 8, module_input_name="token_embeddings")),
        lambda folder: of(folder, torch.nn.Identity()),
        left,
        checkpointed,
    ],
)
def test_a_model_that_reads_more_computes_all_rows(build, tower_folders):
    model = build(tower_folders[0]).train()
    seen = rows_of_norms(model)
    with first_row_alone(model):
        tokens = model(copy.deepcopy(model.preprocess(SENTENCES)))["token_embeddings"]
    assert min(seen) > 1 and tokens.shape[1] > 1
