"""A loss of Sentence-Transformers trains in chunks of similar length: the same loss and gradients."""

import pytest
import torch
from conftest import make_model, make_sentences
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss, MatryoshkaLoss

from st_jtcse.losses.views import in_length_chunks

SENTENCES = ["dog", *make_sentences(10), " ".join(make_sentences(4))]


def gradients(model, loss, labels):
    model.zero_grad()
    found = loss([model.preprocess(SENTENCES)], labels)
    found.backward()
    given = {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }
    return found.detach(), given


@pytest.mark.parametrize("matryoshka", [False, True])
def test_loss_and_gradients_are_those_of_the_whole_batch(tower_folders, matryoshka):
    model = make_model(tower_folders[0], "mean")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.train()
    labels = torch.randn(len(SENTENCES), 32, generator=torch.Generator().manual_seed(1))
    loss = EmbedDistillLoss(model)
    if matryoshka:
        loss = MatryoshkaLoss(model, loss, [32, 16])
    sizes = []
    handle = model[0].register_forward_pre_hook(
        lambda module, given: sizes.append(tuple(given[0]["input_ids"].shape))
    )
    expected, at_once = gradients(model, loss, labels)
    with in_length_chunks(model):
        found, in_chunks = gradients(model, loss, labels)
        model.eval()(model.preprocess(SENTENCES))
    handle.remove()
    whole, *chunks, evaluated = sizes
    assert whole == evaluated and len(chunks) == 4
    assert sum(rows for rows, _ in chunks) == whole[0]
    assert sum(rows * tokens for rows, tokens in chunks) < 0.6 * whole[0] * whole[1]
    torch.testing.assert_close(found, expected)
    assert in_chunks.keys() == at_once.keys()
    for name, gradient in at_once.items():
        torch.testing.assert_close(in_chunks[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
    assert "forward" not in vars(model)
