"""The queue of past embeddings: what is in it after which batch, and what makes it."""

import copy

import pytest
import torch
from conftest import make_model, make_sentences

from st_jtcse.errors import UserError
from st_jtcse.losses import ESimCSELoss, ISCSELoss, SimCSELoss
from st_jtcse.losses.terms import Batch
from st_jtcse.papers.losses.iscse import smoothed
from st_jtcse.papers.losses.margins import contrast

BATCHES = [make_sentences(4, seed=seed) for seed in range(3)]


@pytest.fixture
def model(tower_folders):
    return make_model(tower_folders[0]).eval()


def encode(model, sentences):
    return model(model.preprocess(sentences))["sentence_embedding"].detach()


def test_past_embeddings_are_negatives_until_newer_ones_take_their_place(model):
    loss = ESimCSELoss(model, queue_size=6, momentum=None)
    losses = [loss([model.preprocess(batch)]) for batch in BATCHES]
    first, second, third = (encode(model, batch) for batch in BATCHES)
    torch.testing.assert_close(losses[0], SimCSELoss(model)([model.preprocess(BATCHES[0])]))
    own = torch.arange(4)
    for now, past, found in (
        (second, first, losses[1]),
        (third, torch.cat([first[2:], second]), losses[2]),
    ):
        expected = contrast(now, now, own, 0.05, past=past)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        assert found > contrast(now, now, own, 0.05) + 1e-4
    torch.testing.assert_close(loss.past.rows(), torch.cat([second[2:], third]), rtol=0, atol=1e-6)


def test_a_full_queue_smooths_and_its_rows_are_no_negatives(model):
    loss = ISCSELoss(model, queue_size=10, smoothing_weight=0.5, neighbours=3)
    found = [loss([model.preprocess(batch)]) for batch in BATCHES]
    first, second, third = (encode(model, batch) for batch in BATCHES)
    for terms, now in zip(found, (first, second, third)):
        torch.testing.assert_close(
            terms["nce"], contrast(now, now, torch.arange(4), 0.05), rtol=1e-5, atol=1e-6
        )
    groups = smoothed(third, torch.cat([first[2:], second, third]), 3)
    expected = 0.5 * contrast(third, groups, torch.arange(4), 0.05)
    torch.testing.assert_close(found[2]["smoothing"], expected, rtol=1e-5, atol=1e-6)
    assert [terms["smoothing"].item() for terms in found[:2]] == [0, 0] and expected > 0.01
    found[2]["smoothing"].backward()
    assert any(
        weight.grad is not None and weight.grad.abs().max() > 0 for weight in model.parameters()
    )


def test_no_gradient_flows_into_the_past_and_evaluation_leaves_it(model):
    loss = ESimCSELoss(model, queue_size=8, momentum=0.9)
    for batch in BATCHES[:2]:
        loss([model.preprocess(batch)]).backward()
    assert not loss.past.queue.requires_grad and not any(
        weight.requires_grad for weight in loss.past.parameters()
    )
    assert all(weight.grad is None for weight in loss.past.parameters())
    before = loss.past.queue.clone()
    with torch.no_grad():
        loss([model.preprocess(BATCHES[2])])
    assert torch.equal(loss.past.queue, before)


def test_the_slow_copy_follows_the_model_and_has_no_dropout(model):
    loss = ESimCSELoss(model.train(), queue_size=4, momentum=0.75)
    start = copy.deepcopy(model).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.01)
    loss([model.preprocess(BATCHES[0])])
    for slow, old, new in zip(loss.past.slow.parameters(), start.parameters(), model.parameters()):
        torch.testing.assert_close(slow, 0.75 * old + 0.25 * new, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        loss.past.rows(), encode(loss.past.slow, BATCHES[0]), rtol=1e-5, atol=1e-5
    )
    assert (loss.past.rows() - encode(model, BATCHES[0])).abs().max() > 1e-3


def test_what_cannot_be_kept_is_refused(model):
    with pytest.raises(
        UserError, match="neighbours: expected fewer than 'queue_size', 16, found 16"
    ):
        ISCSELoss(model, queue_size=16)
    for loss in (ESimCSELoss(model, queue_size=4), ISCSELoss(model, queue_size=20)):
        with pytest.raises(
            UserError, match="holds whole ones of 32 components, found 8; leave out Matryoshka"
        ):
            loss.past.take(Batch(loss, {"sentence_embedding": torch.ones(8, 8)}, {}))
    loss = ESimCSELoss(model, queue_size=4)
    model.add_module("more", torch.nn.Linear(2, 2))
    with pytest.raises(
        UserError,
        match=r"follows a model's own weights, found others beside them; leave out model\.l",
    ):
        loss.past.take(Batch(loss, {"sentence_embedding": torch.ones(8, 32)}, {}))
