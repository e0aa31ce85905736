"""The losses in mini-batches, with dropout: the same as in one pass over the batch."""

import copy
import warnings

import pytest
import torch
from conftest import make_model, make_pipeline, make_sentences
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss

from st_jtcse.errors import UserError
from st_jtcse.losses import (
    ArcCSELoss,
    ESimCSELoss,
    ISCSELoss,
    JTCSELoss,
    LSRNSLoss,
    RankCSELoss,
    SimCSELoss,
    WhitenedCSELoss,
    terms,
)

SENTENCES = make_sentences(8, seed=5)
TEACHER = torch.nn.functional.normalize(
    torch.randn(8, 12, generator=torch.Generator().manual_seed(3)), dim=1
)


def judged(model, **settings):
    loss = LSRNSLoss(model, ranks="percentile", rank_loss="listmle", **settings)
    loss.use_pair_scores([(SENTENCES[1], SENTENCES[6], 0.9), (SENTENCES[0], SENTENCES[1], 0.1)])
    return loss


LOSSES = {
    "JTCSELoss": JTCSELoss,
    "SimCSELoss": SimCSELoss,
    "SimCSELoss, both views": lambda model, **settings: SimCSELoss(
        model, candidates="both_views", **settings
    ),
    "ArcCSELoss": ArcCSELoss,
    "ESimCSELoss": lambda model, **settings: ESimCSELoss(
        model, queue_size=8, momentum=None, **settings
    ),
    "ISCSELoss": lambda model, **settings: ISCSELoss(model, queue_size=8, neighbours=3, **settings),
    "WhitenedCSELoss": lambda model, **settings: WhitenedCSELoss(
        model, whitening_groups=16, **settings
    ),
    "RankCSELoss": RankCSELoss,
    "RankCSELoss, CoSENT": lambda model, **settings: RankCSELoss(
        model, ranking="cosent", **settings
    ),
    "LSRNSLoss": LSRNSLoss,
    "LSRNSLoss, judged pairs": judged,
    "MatryoshkaLoss of JTCSELoss": lambda model, **settings: MatryoshkaLoss(
        model, JTCSELoss(model, **settings), [32, 8], [1.0, 0.5]
    ),
    "MatryoshkaLoss of RankCSELoss": lambda model, **settings: MatryoshkaLoss(
        model, RankCSELoss(model, **settings), [32, 8], [1.0, 0.5]
    ),
}


@pytest.fixture(scope="module")
def models(tower_folders):
    return {"twin": make_pipeline(tower_folders), "single": make_model(tower_folders[0])}


@pytest.fixture(autouse=True)
def few_anchors(monkeypatch):
    monkeypatch.setattr(terms, "_ANCHORS", 3)


def step(model, build, length_chunks=None, **settings):
    """The terms of a loss in training mode, its gradients, and the rows of each forward pass."""
    model = copy.deepcopy(model).train()
    rows = []
    model[0].register_forward_pre_hook(
        lambda module, given: rows.append(given[0]["attention_mask"].clone())
    )
    loss = build(model, **settings)
    getattr(loss, "loss", loss).length_chunks = length_chunks
    torch.manual_seed(0)
    found = loss([model.preprocess(SENTENCES)], TEACHER)
    terms = dict(found) if isinstance(found, dict) else {"loss": found}
    (
        2 * torch.stack(list(terms.values())).sum()
    ).backward()  # As if the steps' gradients were weighed.
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {name: value.detach() for name, value in terms.items()}, gradients, rows


@pytest.mark.parametrize("name", LOSSES)
def test_mini_batches_give_the_loss_and_the_gradients_of_the_batch(models, name):
    model = models["twin" if "JTCSE" in name else "single"]
    terms, gradients, rows = step(model, LOSSES[name], length_chunks=4)
    found, cached, parts = step(model, LOSSES[name], mini_batch_size=4)
    # The chunks of similar length are the mini-batches here, so that both ways draw the same
    # dropout.
    assert [len(part) for part in rows] == [4] * 4 and [len(part) for part in parts] == [4] * 8
    assert found.keys() == terms.keys()
    for term, value in terms.items():
        torch.testing.assert_close(found[term], value, rtol=1e-5, atol=1e-5, msg=term)
    assert len(cached) > 50 and {key for key in gradients if gradients[key].any()} <= cached.keys()
    for key, gradient in gradients.items():
        if gradient.any():
            torch.testing.assert_close(cached[key], gradient, rtol=1e-4, atol=1e-5, msg=key)


def test_mini_batches_of_tokens_hold_no_more_than_they_may(models):
    model = copy.deepcopy(models["single"])
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    terms, gradients, _ = step(model, SimCSELoss)
    found, cached, parts = step(model, SimCSELoss, mini_batch_num_tokens=40)
    assert max(int(part.sum()) for part in parts) <= 40 < sum(int(part.sum()) for part in parts) / 4
    torch.testing.assert_close(found["loss"], terms["loss"], rtol=1e-5, atol=1e-5)
    for key in gradients:
        torch.testing.assert_close(cached[key], gradients[key], rtol=1e-4, atol=1e-5, msg=key)


def test_without_gradients_mini_batches_give_the_loss(models):
    model = copy.deepcopy(models["twin"]).eval()
    with torch.no_grad():
        expected, found = (
            JTCSELoss(model, **settings)([model.preprocess(SENTENCES)])
            for settings in ({}, {"mini_batch_size": 3})
        )
    assert not any(value.requires_grad for value in found.values())
    for term, value in expected.items():
        torch.testing.assert_close(found[term], value, rtol=1e-4, atol=1e-5, msg=term)


def test_gradient_checkpointing_beside_mini_batches_is_refused(models):
    model = copy.deepcopy(models["single"]).train()
    with warnings.catch_warnings():  # 2026-11: transformers 5.23 is about to rename it.
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable()
    with pytest.raises(
        UserError, match="switch gradient checkpointing off, and lower mini_batch_size"
    ):
        SimCSELoss(model, mini_batch_size=4)([model.preprocess(SENTENCES)])
    assert SimCSELoss(model)([model.preprocess(SENTENCES)]).isfinite()
