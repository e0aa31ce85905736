"""Losses on images: two augmented views of each, and what a tower learns of them."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sklearn.linear_model import LogisticRegression
from transformers import ResNetConfig, ResNetModel
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from st_jtcse.errors import UserError
from st_jtcse.losses.image_views import augmented_twice

PAGE = Path(__file__).parents[2] / "docs" / "lsrns.md"


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


def texture(kind, rng):
    """Stripes across, stripes down, a chequered board or a grid, of any size, place and two greys, with noise."""
    width, (down, across) = rng.integers(2, 5), rng.integers(0, 8, 2)
    y, x = (np.mgrid[:32, :32] + np.array([[[down]], [[across]]])) // width
    pattern = [x % 2, y % 2, (x + y) % 2, (x % 2) * (y % 2)][kind]
    greys = rng.permutation([rng.uniform(0.0, 0.4), rng.uniform(0.6, 1.0)])
    noisy = greys[pattern][..., None] + rng.normal(0, 0.05, (32, 32, 3))
    return Image.fromarray((255 * noisy.clip(0, 1)).astype(np.uint8))


def textures(count, seed):
    rng = np.random.default_rng(seed)
    kinds = np.arange(count) % 4
    return [texture(kind, rng) for kind in kinds], kinds


def test_simclr_and_lsrns_beat_the_untrained_tower_of_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic")
    ResNetModel(config).save_pretrained("tower")
    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained("tower")
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[-1]
    for written, small in {"microsoft/resnet-18": "tower", "512": "32", "=1000": "=40, use_cpu=True"}.items():
        assert written in example
        example = example.replace(written, small)
    names = {"images": textures(256, seed=0)[0]}
    exec(example, names)
    (fitted, kinds), (tested, truth) = textures(40, seed=1), textures(400, seed=2)
    untrained = SentenceTransformer(modules=[Transformer("tower"), Pooling(32, "mean")], device="cpu")
    accuracy = {}
    for name, model in {"untrained": untrained, "simclr": names["simclr"], "lsrns": names["student"]}.items():
        linear = LogisticRegression(max_iter=2000).fit(model.encode(fitted), kinds)
        accuracy[name] = linear.score(model.encode(tested), truth)
    assert accuracy["untrained"] < 0.7 < 0.85 < min(accuracy["simclr"], accuracy["lsrns"]), accuracy
