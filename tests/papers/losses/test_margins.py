"""Angular margin, triplets, soft negatives and groups: expected values are sums of cosines and
exponentials written out in float64.
"""

import math

import pytest
import torch
from conftest import make_model
from torch.autograd import gradcheck

from st_jtcse.errors import UserError
from st_jtcse.losses import ArcCSELoss, SimCSELoss, SNCSELoss
from st_jtcse.papers.losses.iscse import smoothed
from st_jtcse.papers.losses.margins import bidirectional_margin, contrast, with_margin


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


def test_arccse_takes_the_margin_and_without_it_is_simcse(single):
    a, b = (view.detach() for view in views("a", "b"))
    none, wide = (ArcCSELoss(single, temperature=0.1, angular_margin=m) for m in (1e-6, 30))
    plain = SimCSELoss(single, temperature=0.1).compute_loss_from_embeddings([a, b])
    torch.testing.assert_close(none.compute_loss_from_embeddings([a, b]), plain, rtol=0, atol=1e-6)
    assert wide.compute_loss_from_embeddings([a, b]) > plain + 0.5


def test_a_triplets_third_view_is_farther_by_the_margin_and_no_farther_than_it_likes(single):
    """The positive at 20 degrees; third views at 30, where the margin of 0.2 is not met, and 170."""
    a, b, third = on_circle(0, 0), on_circle(20, 20), on_circle(30, 170)
    loss = ArcCSELoss(single, triplet_weight=0.5, triplet_margin=0.2)
    found = loss.compute_loss_from_embeddings([a, b, third])
    assert found.keys() == {"nce", "triplets"}
    expected = 0.5 * (cos(30) - cos(20) + 0.2) / 2
    assert found["triplets"].item() == pytest.approx(expected, abs=1e-12)


def test_sncse_weighs_the_margin_loss_of_the_third_view(single):
    a, b, soft = (view.detach() for view in views("a", "b", "soft"))
    loss = SNCSELoss(single, temperature=0.1, margin_weight=0.25, least_gap=0.05, most_gap=0.1)
    found = loss.compute_loss_from_embeddings([a, b, soft])
    margin = bidirectional_margin(a, b, soft, 0.05, 0.1)
    assert margin > 0.1 and found.keys() == {"nce", "soft_negatives"}
    torch.testing.assert_close(found["soft_negatives"], 0.25 * margin)
    plain = SimCSELoss(single, temperature=0.1).compute_loss_from_embeddings([a, b])
    torch.testing.assert_close(found["nce"], plain)


@pytest.mark.parametrize(
    ("loss", "settings", "message"),
    [
        (ArcCSELoss, dict(angular_margin=90), "angular_margin: expected a number below 90, found"),
        (ArcCSELoss, dict(angular_margin=-1.0), "angular_margin: expected a number of at least 0"),
        (ArcCSELoss, dict(triplet_weight=-0.5), "triplet_weight: expected a number of at least 0"),
        (SNCSELoss, dict(margin_weight=0), "margin_weight: expected a number above 0, found 0"),
        (SNCSELoss, dict(least_gap=0.4), r"least_gap: expected at most 'most_gap', 0.3, found 0.4"),
        (
            SNCSELoss,
            dict(most_gap=0.05),
            r"least_gap: expected at most 'most_gap', 0.05, found 0.1",
        ),
    ],
)
def test_values_that_make_no_margin_are_refused(single, loss, settings, message):
    with pytest.raises(UserError, match=message):
        loss(single, **settings)


def test_a_loss_of_three_views_refuses_two(single):
    features = [single.preprocess(["the dog runs", "a man reads"])]
    for loss in (SNCSELoss(single), ArcCSELoss(single, triplet_weight=1.0)):
        message = f"{type(loss).__name__} needs a third view of each sentence, found two by dropout"
        with pytest.raises(UserError, match=message):
            loss(features)
