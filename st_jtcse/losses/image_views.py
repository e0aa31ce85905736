"""Two augmented views of each image, where dropout makes those of a sentence."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from st_jtcse.errors import UserError

# Where Sentence-Transformers puts a batch of images, (B, C, H, W).
PIXELS = "pixel_values"
# SimCLR, as its authors crop; of the jitter half their strength, as for small images.
_LEAST_AREA, _JITTER, _GREY = 0.08, 0.4, 0.2


def augmented_twice(images: Tensor) -> Tensor:
    """Return two views of each image, (2B, C, H, W): 0..B-1 are view a, B..2B-1 view b.

    Each is cropped, flipped, and changed in brightness, contrast and colour on its own, by torch's
    generator as dropout is. Images, (B, C, H, W), are as the model reads them, normalised or not.

    Raises:
        UserError: A model reads images in another form, such as patches.

    References:
        Chen et al., SimCLR, ICML 2020, Appendix A.
    """
    if images.dim() != 4:
        raise UserError(
            f"Two views of images are made of (B, C, H, W), found {tuple(images.shape)}; use "
            "another model."
        )
    views = torch.cat([images, images])
    return _coloured(_cropped(views))


def _cropped(views: Tensor) -> Tensor:
    """Show a random part of each, brought to the whole size, and half of them mirrored."""
    side = _drawn(views, _LEAST_AREA, 1.0).sqrt()
    across, down = ((1 - side) * _drawn(views, -1.0, 1.0) for _ in range(2))
    zero = torch.zeros_like(side)
    mirrored = torch.where(_drawn(views, -1.0, 1.0) < 0, -side, side)
    places = torch.stack(
        [torch.stack([mirrored, zero, across], 1), torch.stack([zero, side, down], 1)],
        1,
    )
    grid = affine_grid(places, list(views.shape), align_corners=False)
    return grid_sample(views, grid, padding_mode="border", align_corners=False)


def _coloured(views: Tensor) -> Tensor:
    """Change contrast, saturation and brightness; of a share of them the colour goes altogether."""
    contrast, saturation = (
        _drawn(views, 1 - _JITTER, 1 + _JITTER)[:, None, None, None] for _ in range(2)
    )
    saturation = saturation * (_drawn(views, 0.0, 1.0) >= _GREY)[:, None, None, None]
    mean, deviation = views.mean((1, 2, 3), keepdim=True), views.std((1, 2, 3), keepdim=True)
    brightness = deviation * _drawn(views, -_JITTER, _JITTER)[:, None, None, None]
    views = mean + contrast * (views - mean) + brightness
    grey = views.mean(1, keepdim=True)
    return grey + saturation * (views - grey)


def _drawn(views: Tensor, low: float, high: float) -> Tensor:
    """Return one number a view, (2B,)."""
    return torch.empty(len(views), device=views.device, dtype=views.dtype).uniform_(low, high)
