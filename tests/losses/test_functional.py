"""Row (i, a): its positive is (i, b), never itself. Expected values are written out or computed by
another's code.
"""

import json
import math
from pathlib import Path

import pytest
import torch
from torch.autograd import gradcheck

from st_jtcse.losses.functional import (
    interaction_nt_xent,
    interaction_tensor_modulus,
    nt_xent,
    tensor_modulus,
)

# Values of the TNCSE authors' public code (github tianyuzong/TNCSE) in float64; `ltn_*` is one
# halved ICTM sum.
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "jtcse_losses.json").read_text())


@pytest.fixture(params=GOLDEN, ids=["easy", "wide", "negative_cosine"])
def golden(request):
    case = request.param
    tensors = {
        name: torch.tensor(rows, dtype=torch.float64) for name, rows in case["inputs"].items()
    }
    return tensors, case["expected"], case["temperature"]


def views(tensors, kind, tower):
    return tensors[f"{kind}_{tower}_a"], tensors[f"{kind}_{tower}_b"]


def random_views(*names, rows=4, width=6):
    generator = torch.Generator().manual_seed(7)
    return [
        torch.randn(rows, width, dtype=torch.float64, generator=generator, requires_grad=True)
        for _ in names
    ]


def test_nt_xent_equals_the_authors_code(golden):
    tensors, expected, temperature = golden
    for tower in ("I", "II"):
        assert (
            abs(
                nt_xent(*views(tensors, "cls", tower), temperature).item()
                - expected[f"nce_{tower}"]
            )
            < 1e-9
        )


@pytest.mark.parametrize(("kind", "key"), [("cls", "icnce"), ("cross", "icnce_cross")])
@pytest.mark.parametrize(("query", "candidate"), [("I", "II"), ("II", "I")])
def test_interaction_nt_xent_equals_the_authors_code(golden, kind, key, query, candidate):
    tensors, expected, temperature = golden
    found = interaction_nt_xent(
        *views(tensors, kind, query), *views(tensors, kind, candidate), temperature
    )
    assert abs(found.item() - expected[f"{key}_{query}_to_{candidate}"]) < 1e-9


def test_interaction_tensor_modulus_equals_twice_the_authors_halved_sums(golden):
    tensors, expected, _ = golden
    found = interaction_tensor_modulus(
        *views(tensors, "cls", "I"),
        *views(tensors, "cls", "II"),
        *views(tensors, "pooler", "I"),
        *views(tensors, "pooler", "II"),
    )
    assert abs(found.item() - 2 * (expected["ltn_I_II"] + expected["ltn_II_I"])) < 1e-9


def test_a_golden_case_holds_a_negative_cosine():
    tensors = {
        name: torch.tensor(rows, dtype=torch.float64) for name, rows in GOLDEN[2]["inputs"].items()
    }
    one_to_two = torch.cosine_similarity(tensors["cls_I_a"], tensors["cls_II_b"])
    two_to_one = torch.cosine_similarity(tensors["cls_II_a"], tensors["cls_I_b"])
    assert min(one_to_two.min(), two_to_one.min()) < 0


def test_nt_xent_by_hand():
    # Unit rows a0 = b0 = e1 and a1 = b1 = e2 at temperature 1: each row has the positive cosine 1
    # and two candidates of cosine 0.
    rows = torch.eye(2, dtype=torch.float64)
    assert nt_xent(rows, rows, 1.0).item() == pytest.approx(math.log(1 + 2 / math.e), abs=1e-12)


def test_interaction_excludes_the_same_sentence_in_the_same_view():
    query_a, query_b, candidate_a, candidate_b = random_views("qa", "qb", "ca", "cb")
    loss = interaction_nt_xent(query_a[:1], query_b[:1], candidate_a[:1], candidate_b[:1])
    # With one sentence each row's only candidate left is its positive.
    assert loss.item() == 0
    rows, columns = torch.cat([query_a, query_b]), torch.cat([candidate_a, candidate_b])
    cosines = torch.cosine_similarity(rows[:, None], columns[None], dim=-1) / 0.05
    by_hand = []
    for row in range(8):
        others = [cosines[row, column].item() for column in range(8) if column != row]
        by_hand.append(
            math.log(sum(math.exp(x) for x in others)) - cosines[row, (row + 4) % 8].item()
        )
    assert interaction_nt_xent(query_a, query_b, candidate_a, candidate_b).item() == pytest.approx(
        sum(by_hand) / 8, abs=1e-12
    )


def test_a_batch_of_one_has_zero_contrastive_loss_and_gradient():
    view_a, view_b = random_views("a", "b", rows=1)
    loss = nt_xent(view_a, view_b)
    loss.backward()
    assert loss.item() == 0
    assert view_a.grad.abs().max() < 1e-12


def test_tensor_modulus_equals_eq_5_on_a_grid():
    for k in (0.1, 0.5, 1.0, 2.0, 10.0):
        for t in (-1.0, -0.3, 0.0, 0.4, 0.99, 1.0):
            p = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
            q = k * torch.tensor([[t, math.sqrt(1 - t * t)]], dtype=torch.float64)
            expected = math.sqrt(max(1 + k * k - 2 * k * t, 0)) / (1 + k)
            assert tensor_modulus(p, q).item() == pytest.approx(expected, abs=1e-12)


def test_tensor_modulus_is_zero_for_equal_rows_with_a_finite_gradient():
    p = torch.tensor([[0.3, -0.4]], dtype=torch.float64, requires_grad=True)
    value = tensor_modulus(p, p.detach().clone())
    value.sum().backward()
    assert value.item() == 0
    assert torch.isfinite(p.grad).all()
    assert tensor_modulus(torch.zeros(1, 2), torch.zeros(1, 2)).item() == 0


def test_a_negative_cosine_gives_a_constant_coefficient_without_gradient():
    h = torch.tensor([[1.0, 0.2]], dtype=torch.float64, requires_grad=True)
    opposite = -h.detach()
    p, q = (
        torch.tensor([[0.5, 0.0]], dtype=torch.float64),
        torch.tensor([[0.0, 0.5]], dtype=torch.float64),
    )
    loss = interaction_tensor_modulus(h, opposite, opposite, opposite, p, p, q, q)
    # Rows (1a, 2b) disagree: 9.2103 * 0.7071; rows (2a, 1b) agree: -log 1 = 0.
    assert loss.item() == pytest.approx(-math.log(1e-4) * math.sqrt(0.5), abs=1e-9)
    loss.backward()
    assert h.grad.abs().max() == 0


def test_gradients():
    four = random_views("1a", "1b", "2a", "2b")
    assert gradcheck(lambda a, b: nt_xent(a, b, 0.5), four[:2])
    assert gradcheck(lambda *x: interaction_nt_xent(*x, 0.5), four)
    assert gradcheck(tensor_modulus, four[:2])
    towers = [
        x.detach().abs().requires_grad_() for x in four
    ]  # positive cosines, so the coefficient has a gradient
    poolers = [x.detach().roll(1, 0).requires_grad_() for x in four]
    assert gradcheck(interaction_tensor_modulus, (*towers, *poolers))


def test_half_precision_inputs_are_compared_in_float32():
    view_a, view_b = (x.detach() for x in random_views("a", "b"))
    exact = nt_xent(view_a.bfloat16().double(), view_b.bfloat16().double()).item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nt_xent(view_a.bfloat16(), view_b.bfloat16()).item() == pytest.approx(
            exact, abs=1e-4
        )
