"""Alignment, uniformity, density and map: numbers by hand, and what has no number is refused."""

import math

import numpy as np
import pytest
import torch

from st_jtcse.errors import UserError
from st_jtcse.papers.diagnostics import (
    alignment,
    cosine_density,
    score_fifths,
    sentence_map,
    uniformity,
)

# Directions of the four winds, of different lengths.
WINDS = np.array([[2.0, 0.0], [0.0, 0.5], [-1.0, 0.0], [0.0, -7.0]])


def test_alignment_is_the_mean_squared_distance_of_unit_vectors():
    # East to north is sqrt(2) away, east to west 2.
    assert alignment(WINDS[[0, 0]], WINDS[[1, 2]]) == pytest.approx((2 + 4) / 2, abs=1e-15)
    assert alignment(WINDS, 3 * WINDS) == 0


def test_uniformity_of_four_vectors():
    # Of the six pairs four are sqrt(2) apart and two are 2 apart.
    assert uniformity(WINDS) == pytest.approx(
        math.log((4 * math.exp(-4) + 2 * math.exp(-8)) / 6), abs=1e-14
    )


def test_uniformity_in_blocks_equals_all_pairs_at_once():
    points = torch.randn(1100, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    unit = torch.nn.functional.normalize(points, dim=1)
    expected = torch.pdist(unit).pow(2).mul(-2).exp().mean().log().item()
    assert uniformity(points) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("fault", [0.0, math.nan, math.inf])
def test_vectors_without_a_direction_are_refused(fault):
    with pytest.raises(
        UserError, match="1 of 3 embeddings are zero or not finite, so they have no direction"
    ):
        uniformity([[1.0, 0.0], [fault, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("scores", "score_range", "fifths"),
    [
        ([0, 0.5, 1, 1.01, 2, 3, 4, 4.2, 5], (0, 5), [0, 0, 0, 1, 1, 2, 3, 4, 4]),
        ([1, 1.8, 1.9, 2.6, 3.4, 4.2, 5], (1, 5), [0, 0, 1, 1, 2, 3, 4]),
        ([0, 0.2, 0.4, 0.6, 0.8, 1], (0, 1), [0, 0, 1, 2, 3, 4]),
    ],
)
def test_a_score_on_an_edge_belongs_to_the_lower_fifth(scores, score_range, fifths):
    assert score_fifths(scores, score_range).tolist() == fifths


def test_cosines_are_grouped_by_fifth():
    cosines = [0.1, 0.3, 0.5, 0.5, 0.9]
    found = cosine_density(cosines, [0, 1, 3, 2.5, 5], (0, 5))
    assert found.edges.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.counts.tolist() == [2, 0, 2, 0, 1]
    np.testing.assert_allclose(found.means, [0.2, np.nan, 0.5, np.nan, 0.9])
    np.testing.assert_allclose(found.deviations, [0.1, np.nan, 0.0, np.nan, 0.0], atol=1e-15)
    # Scott's bandwidth: the standard deviation (of a sample) times n^(-1/5).
    width = np.std([0.1, 0.3], ddof=1) * 2**-0.2
    kernels = [
        np.exp(-0.5 * ((found.grid - c) / width) ** 2) / (width * math.sqrt(2 * math.pi))
        for c in (0.1, 0.3)
    ]
    np.testing.assert_allclose(found.density[0], np.mean(kernels, axis=0))
    # One cosine, or one twice, has no density.
    assert np.isnan(found.density[1:]).all()


def test_the_map_by_principal_components_keeps_a_plane():
    angles = np.array([0.0, 0.3, 1.0, 1.2, 2.0])
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))
    found = sentence_map(5 * circle @ turn[:2], "pca")
    distances = [
        np.linalg.norm(points[:, None] - points, axis=-1) for points in (circle, found.points)
    ]
    np.testing.assert_allclose(*distances, atol=1e-12)
    assert found.explained.sum() == pytest.approx(1)


def test_the_map_by_neighbours_follows_from_its_seed():
    vectors = np.random.default_rng(0).normal(size=(12, 5))
    found = sentence_map(vectors, "tsne", seed=3)
    assert found.points.shape == (12, 2) and found.explained is None
    assert np.array_equal(found.points, sentence_map(vectors, "tsne", seed=3).points)


def test_a_map_of_two_sentences_is_refused():
    with pytest.raises(UserError, match="at least three different sentences, found 2"):
        sentence_map(np.eye(2))
