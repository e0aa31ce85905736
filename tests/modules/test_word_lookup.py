"""The words of a batch looked up once against a lookup for every part of it."""

import contextlib
import copy

import pytest
import torch
from conftest import make_model, make_pipeline, make_sentences
from torch.utils._python_dispatch import TorchDispatchMode

from st_jtcse.losses import JTCSELoss, SimCSELoss, views

SENTENCES = make_sentences(8, seed=2)
LOSSES = {"single": SimCSELoss, "twin": JTCSELoss}


def chunked(loss):
    loss.length_chunks = 4
    return loss


@pytest.fixture(scope="module")
def models(tower_folders):
    return {"single": make_model(tower_folders[0]), "twin": make_pipeline(tower_folders)}


class Lengths(TorchDispatchMode):
    """Keeps the length of every gradient of a lookup."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.embedding_dense_backward.default:
            self.seen.append(args[2])
        return func(*args, **(kwargs or {}))


def step(model, loss):
    """The gradients of two steps added up, and how often one was as long as the vocabulary."""
    torch.manual_seed(0)
    lengths = Lengths()
    for begin in (0, 4):
        value = chunked(loss(model))([model.preprocess(SENTENCES[begin : begin + 4])])
        with lengths:
            (sum(value.values()) if isinstance(value, dict) else value).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return gradients, lengths.seen.count(len(model.tokenizer))


@pytest.mark.parametrize("kind", LOSSES)
def test_one_gradient_of_the_vocabulary_a_batch_and_not_a_bit_of_it_differs(
    kind, models, monkeypatch
):
    towers = 2 if kind == "twin" else 1
    model = copy.deepcopy(models[kind]).train()
    found, long = step(model, LOSSES[kind])
    assert long == 2 * towers
    monkeypatch.setattr(
        views, "words_looked_up_once", lambda model, input_ids: contextlib.nullcontext()
    )
    expected, often = step(copy.deepcopy(models[kind]).train(), LOSSES[kind])
    assert often == 4 * long
    assert found.keys() == expected.keys()
    assert [
        name for name, gradient in expected.items() if not torch.equal(found[name], gradient)
    ] == []
    assert not any("forward" in vars(module) for module in model.modules())


def test_frozen_words_are_looked_up_as_ever(models):
    model = copy.deepcopy(models["single"]).train()
    lookup = model[0].model.get_input_embeddings()
    lookup.weight.requires_grad_(False)
    rows = []
    lookup.register_forward_hook(
        lambda module, given, output: rows.append("forward" in vars(module))
    )
    chunked(SimCSELoss(model))([model.preprocess(SENTENCES)]).backward()
    assert rows == [False] * 4
