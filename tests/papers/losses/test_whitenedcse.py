"""Shuffled group whitening, in float64 against roots of matrices, and InfoNCE between whitened
views.
"""

import numpy as np
import pytest
import torch
from conftest import make_model, make_sentences
from torch.autograd import gradcheck

from st_jtcse.errors import UserError
from st_jtcse.losses import WhitenedCSELoss
from st_jtcse.losses.functional import info_nce
from st_jtcse.papers.losses.whitenedcse import shuffled_group_whitening as whitened

ORDER = torch.tensor([4, 0, 7, 2, 1, 6, 3, 5])


def rows(count=40, size=8, seed=0):
    draw = torch.Generator().manual_seed(seed)
    shape = dict(dtype=torch.float64, generator=draw)
    return torch.randn(count, size, **shape) @ torch.randn(size, size, **shape) + 3 * torch.randn(
        size, **shape
    )


@pytest.fixture(scope="module")
def single(tower_folders):
    return make_model(tower_folders[0])


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_each_group_has_mean_0_and_the_identity_as_covariance_by_the_symmetric_root(groups):
    x = rows()
    found = whitened(x, groups, ORDER)
    for group in ORDER.view(groups, -1):
        part = found[:, group]
        assert part.mean(dim=0).abs().max() < 1e-10
        assert (part.T @ part / len(x) - torch.eye(len(group))).abs().max() < 1e-9
        values, vectors = np.linalg.eigh(
            np.cov(x[:, group].numpy().T, bias=True).reshape(len(group), -1)
        )
        root = vectors @ np.diag(values**-0.5) @ vectors.T
        np.testing.assert_allclose(
            part, (x[:, group] - x[:, group].mean(dim=0)).numpy() @ root, rtol=0, atol=1e-10
        )
    if groups in (2, 4):  # Of other groups, other versions.
        assert (found - whitened(x, groups, torch.arange(8))).abs().max() > 0.1


def test_gradients_also_where_variances_are_equal_and_where_rows_are_fewer_than_components():
    x = rows(12).requires_grad_()
    assert gradcheck(lambda x: whitened(x, 2, ORDER), (x,))
    white = whitened(x.detach(), 2, ORDER).requires_grad_()
    torch.testing.assert_close(whitened(white, 2, ORDER), white, rtol=0, atol=1e-8)
    assert gradcheck(lambda x: whitened(x, 2, ORDER), (white,))
    for count in (1, 2, 3):
        few = rows(count).float().requires_grad_()
        info_nce(whitened(few, 2, ORDER), whitened(few, 2, torch.arange(8))).backward()
        assert few.grad.isfinite().all()
    assert whitened(x.detach().half(), 4, ORDER).dtype == torch.float32


def test_the_losses_of_versions_that_the_random_state_alone_decides_are_added_up(single):
    a, b = rows(seed=1), rows(seed=2)
    loss = WhitenedCSELoss(single, whitening_groups=4, whitened_positives=3)

    def drawn(seed):
        torch.manual_seed(seed)
        return loss.compute_loss_from_embeddings([a, b])

    torch.manual_seed(5)
    views = [whitened(view, 4, torch.randperm(8)) for view in (a, b, b, b)]
    expected = sum(info_nce(views[0], version) for version in views[1:])
    torch.testing.assert_close(drawn(5), expected, rtol=1e-10, atol=0)
    assert drawn(5) == drawn(5) != drawn(6)


def test_no_positive_is_refused(single):
    with pytest.raises(UserError, match="whitened_positives: expected a number above 0, found 0"):
        WhitenedCSELoss(single, whitened_positives=0)


def test_groups_that_do_not_divide_the_embedding_are_refused_at_the_first_batch(single):
    with pytest.raises(
        UserError, match="whitening_groups: expected a divisor of the embedding's size, 32, found 5"
    ):
        WhitenedCSELoss(single, whitening_groups=5)([single.preprocess(make_sentences(4))])
