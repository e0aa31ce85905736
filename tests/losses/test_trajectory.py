"""Twenty steps of joint training equal the equations written out, in float64 to 1e-9.

Two plain encoders and TNCSE's Eq. 4 to 8, row by row as the papers and the authors' public code have
them, beside our twin and loss: the same batches, dropout 0, AdamW.
"""

import math

import pytest
import torch
from conftest import make_sentences, save_encoder
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoModel, AutoTokenizer

from st_jtcse.losses import JTCSELoss
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder

STEPS, BATCH, TEMPERATURE = 20, 3, 0.05
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def cosine(x, y):
    return (x * y).sum() / (x.norm() * y.norm())


def nt_xent(queries, candidates):
    """Eq. 4 and 5 over the rows (view, sentence): the positive is the sentence in the other view."""
    total = 0.0
    for view in (0, 1):
        for at in range(BATCH):
            left = {
                (other, row): cosine(queries[view][at], candidates[other][row]) / TEMPERATURE
                for other in (0, 1)
                for row in range(BATCH)
                if (other, row) != (view, at)
            }
            denominator = sum(torch.exp(value) for value in left.values())
            total = total - torch.log(torch.exp(left[1 - view, at]) / denominator)
    return total / (2 * BATCH)


def modulus(states, others, poolers, other_poolers):
    """Half of Eq. 6, as the authors' code has it: view a of one tower, view b of the other."""
    total = 0.0
    for at in range(BATCH):
        similarity = cosine(states[0][at], others[1][at])
        weight = -torch.log(similarity) if similarity > 0 else -math.log(1e-4)
        first, second = poolers[0][at], other_poolers[1][at]
        total = total + weight * (first - second).norm() / (first.norm() + second.norm()) / 2
    return total / BATCH


def by_the_equations(towers, inputs):
    """Eq. 8, of both towers' last CLS states and pooler outputs; without dropout both views are
    equal.
    """
    outputs = [[tower(**inputs) for _ in range(2)] for tower in towers]
    one, two = ([view.last_hidden_state[:, 0] for view in own] for own in outputs)
    pooled_one, pooled_two = ([view.pooler_output for view in own] for own in outputs)
    contrast = nt_xent(one, one) + nt_xent(two, two) + nt_xent(one, two)
    crosswise = modulus(one, two, pooled_one, pooled_two)
    return contrast + crosswise + modulus(two, one, pooled_two, pooled_one)


def test_twenty_steps_are_those_of_the_equations(tmp_path):
    for number in (1, 2):
        save_encoder(tmp_path / f"{number}", number, num_hidden_layers=2, **STILL)
    places = [str(tmp_path / "1"), str(tmp_path / "2")]
    encoder = TwinCrossAttentionEncoder.from_towers(*places, cross_attention_every=None)
    modules = [encoder, PoolerModulusHead(), Pooling(encoder.get_embedding_dimension(), "cls")]
    model = SentenceTransformer(modules=modules, device="cpu").double().train()
    loss = JTCSELoss(model, cross_weight=0.0, direction="1_to_2", ictm_weight=0.5)
    towers = [AutoModel.from_pretrained(place).double().train() for place in places]
    tokenizer = AutoTokenizer.from_pretrained(places[0])
    settings = {"lr": 1e-3, "weight_decay": 0.01}
    ours = torch.optim.AdamW(model.parameters(), **settings)
    theirs = torch.optim.AdamW([w for tower in towers for w in tower.parameters()], **settings)
    start = [weight.detach().clone() for tower in towers for weight in tower.parameters()]
    texts = make_sentences(STEPS * BATCH, seed=3)
    for step in range(STEPS):
        batch = texts[step * BATCH : (step + 1) * BATCH]
        found = sum(loss([model.preprocess(batch)], None).values())
        inputs = tokenizer(batch, padding=True, return_tensors="pt")
        expected = by_the_equations(towers, inputs)
        assert found.item() == pytest.approx(expected.item(), rel=1e-9), step
        for optimizer, value in ((ours, found), (theirs, expected)):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    weights = [weight for tower in encoder.model.towers for weight in tower.parameters()]
    goal = [weight for tower in towers for weight in tower.parameters()]
    moved = math.sqrt(sum((a - b).square().sum().item() for a, b in zip(goal, start)))
    apart = math.sqrt(
        sum((a - b).square().sum().item() for a, b in zip(goal, weights, strict=True))
    )
    assert moved > 0.1 and apart < 1e-9 * moved
