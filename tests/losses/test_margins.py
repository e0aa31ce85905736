"""Angular margin and soft negatives: expected values are sums of cosines and exponentials written
out in float64.
"""

import math

import pytest
import torch
from conftest import make_model
from torch.autograd import gradcheck

from st_jtcse.errors import UserError
from st_jtcse.losses import SimCSELoss
from st_jtcse.losses.functional import nt_xent
from st_jtcse.losses.margins import bidirectional_margin, contrast, smoothed, with_margin


def on_circle(*degrees, scale=3.0):
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return scale * torch.stack([angles.cos(), angles.sin()], dim=1)


def cos(degrees):
    return math.cos(math.radians(degrees))


def views(*names):
    generator = torch.Generator().manual_seed(3)
    return [
        torch.randn(5, 6, dtype=torch.float64, generator=generator, requires_grad=True)
        for _ in names
    ]


@pytest.fixture(scope="module")
def single(tower_folders):
    return make_model(tower_folders[0])


def test_the_margin_is_added_to_the_angle_of_the_positive_alone():
    """Queries at 0 and 90 degrees, positives at 20 and 60; a past sentence at 180."""
    a, b, past = on_circle(0, 90), on_circle(20, 60), on_circle(180)
    own = torch.arange(2)

    def row(positive, *negatives):
        top = math.exp(positive / 0.5)
        return -math.log(top / (top + sum(math.exp(value / 0.5) for value in negatives)))

    expected = (row(cos(20 + 15), cos(60)) + row(cos(30 + 15), cos(70))) / 2
    assert contrast(a, b, own, 0.5, 15.0).item() == pytest.approx(expected, abs=1e-12)
    expected = (row(cos(35), cos(60), cos(180)) + row(cos(45), cos(70), cos(90))) / 2
    assert contrast(a, b, own, 0.5, 15.0, past=past).item() == pytest.approx(expected, abs=1e-12)
    expected = (row(cos(35), cos(60), cos(90)) + row(cos(45), cos(70), cos(90))) / 2
    assert contrast(a, b, own, 0.5, 15.0, same_view=a).item() == pytest.approx(expected, abs=1e-12)


def test_soft_negatives_are_held_between_the_two_gaps():
    a = on_circle(0, 0, 0)
    b, soft = on_circle(20, 20, 20), on_circle(25, 30, 50)
    gaps = [
        cos(angle) - cos(20) for angle in (25, 30, 50)
    ]  # too small, as wanted for neither, too large
    assert gaps[0] > -0.05 > gaps[1] > -0.2 > gaps[2]
    expected = ((gaps[0] + 0.05) + 0 + (-gaps[2] - 0.2)) / 3
    assert bidirectional_margin(a, b, soft, 0.05, 0.2).item() == pytest.approx(expected, abs=1e-12)


def test_a_group_is_the_row_and_its_nearest_past_ones_by_attention():
    """Rows at 0 and 90 degrees; the past: both of them, 30, 50 and 200 degrees."""
    rows, past = on_circle(0, 90), on_circle(200, 0, 90, 30, 50)

    def group(*degrees):
        angles = torch.tensor(degrees, dtype=torch.float64)
        weights = (torch.cos((angles - angles[0]).deg2rad()) / 2).softmax(dim=0)
        return (weights[:, None] * on_circle(*degrees, scale=1.0)).sum(dim=0)

    expected = torch.stack([group(0, 30, 50), group(90, 50, 30)])
    torch.testing.assert_close(smoothed(rows, past, 2), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(smoothed(rows, past, 1)[0], group(0, 30), rtol=0, atol=1e-12)


def test_gradients_and_none_of_them_is_infinite_where_two_views_are_equal():
    a, b, soft = views("a", "b", "soft")
    own = torch.tensor([1, 2, 3, 4, 0])
    assert gradcheck(lambda a, b, s: contrast(a, b, own, 0.5, 10.0, past=s), (a, b, soft))
    past = torch.cat([a, b]).detach()
    assert gradcheck(lambda a: smoothed(a, past, 3), (a,))
    assert gradcheck(lambda a, b, s: bidirectional_margin(a, b, s, 0.1, 0.3), (a, b, soft))
    contrast(a, a.detach(), torch.arange(5), 0.5, 10.0).backward()
    assert torch.isfinite(a.grad).all()
    assert with_margin(torch.ones(()), 10.0).item() == pytest.approx(cos(10), abs=1e-3)


@pytest.mark.parametrize("candidates", ["other_view", "both_views"])
def test_simcse_takes_the_margin_and_without_it_is_what_it_was(single, candidates):
    a, b = (view.detach() for view in views("a", "b"))
    loss = SimCSELoss(single, temperature=0.1, candidates=candidates, angular_margin=1e-6)
    plain = SimCSELoss(single, temperature=0.1, candidates=candidates).compute_loss_from_embeddings(
        [a, b]
    )
    torch.testing.assert_close(loss.compute_loss_from_embeddings([a, b]), plain, rtol=0, atol=1e-6)
    wide = SimCSELoss(single, temperature=0.1, candidates=candidates, angular_margin=30)
    assert wide.compute_loss_from_embeddings([a, b]) > plain + 0.5
    if candidates == "both_views":
        torch.testing.assert_close(plain, nt_xent(a, b, 0.1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(angular_margin=90), "angular_margin: expected a number below 90, found 90"),
        (dict(angular_margin=-1.0), "angular_margin: expected a number of at least 0, found -1"),
        (dict(soft_negatives=-0.5), "soft_negatives: expected a number of at least 0"),
        (dict(least_gap=0.4), r"least_gap: expected at most 'most_gap', 0.3, found 0.4\. Lower it"),
    ],
)
def test_values_that_make_no_margin_are_refused(single, settings, message):
    with pytest.raises(UserError, match=message):
        SimCSELoss(single, **settings)


def test_soft_negatives_without_a_third_view_are_refused(single):
    with pytest.raises(
        UserError, match="soft_negatives needs a third view of each sentence, found two by dropout"
    ):
        SimCSELoss(single, soft_negatives=1.0)([single.preprocess(["the dog runs", "a man reads"])])
