"""Two augmented views of each image."""

import pytest
import torch

from st_jtcse.errors import UserError
from st_jtcse.losses.image_views import augmented_twice


def test_views_are_drawn_apart_and_by_the_seed():
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    views = augmented_twice(images)
    assert views.shape == (6, 3, 16, 16) and torch.isfinite(views).all()
    assert (views[:3] - views[3:]).abs().amax((1, 2, 3)).min() > 0.05
    torch.manual_seed(1)
    assert torch.equal(augmented_twice(images), views)


def test_an_image_of_one_grey_stays_of_one_grey():
    # Wherever it is cropped, and whatever its contrast: it has none, and no colour.
    views = augmented_twice(torch.full((4, 3, 8, 8), 0.5))
    torch.testing.assert_close(views, torch.full((8, 3, 8, 8), 0.5))


def test_images_in_patches_are_refused():
    with pytest.raises(UserError, match=r"\(B, C, H, W\), found \(2, 768\)"):
        augmented_twice(torch.zeros(2, 768))
