"""Maps fitted step by step on a text's vectors: by hand, from a file in parts, and on clusters."""

import numpy as np
import pytest

from st_jtcse.data import fitted_maps
from st_jtcse.data.fitted_maps import (
    Centred,
    Drawn,
    ScaledAxes,
    Towards,
    WithoutMeanDirection,
    WithoutTop,
    fit_maps,
)
from st_jtcse.data.neighbours import neighbourhood_means
from st_jtcse.errors import UserError
from st_jtcse.evaluation.own_sets import nearest_others


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def clusters(seed, rows=600, size=24):
    """Topics in six directions, and noise in all; a mean that all share."""
    centres = np.random.default_rng(0).normal(size=(12, 6)) @ np.eye(6, size)
    draw = np.random.default_rng(seed)
    labels = draw.integers(12, size=rows)
    noise = 0.8 * draw.normal(size=(rows, size))
    return (centres[labels] + noise + 1.5).astype(np.float32), labels


def precision(vectors, labels):
    nearest = nearest_others(unit(vectors), 10)
    return (labels[nearest] == labels[:, None]).mean()


def test_centred_then_drawn_is_one_map_by_the_equations():
    vectors, _ = clusters(1)
    (found,) = fit_maps(vectors, [Centred(), Drawn(10, 0.5, ridge=2.0)])
    start = unit(vectors.astype(np.float64))
    mean = start.mean(axis=0)
    centred = unit(start - mean)
    targets = neighbourhood_means(centred, 10, 0.5).astype(np.float64)
    inner = centred.T @ centred + 2 * np.eye(24)
    weights = np.linalg.solve(inner, centred.T @ targets + 2 * np.eye(24))
    np.testing.assert_allclose(found.matrix, weights, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.bias, -mean @ weights, rtol=0, atol=1e-5)


def test_drawing_to_neighbours_brings_topics_together_that_it_was_not_fitted_on():
    vectors, labels = clusters(2)
    others, _ = clusters(3)
    maps = fit_maps(others, [Centred(), Drawn(20)])
    before, after = precision(vectors, labels), precision(maps[0](vectors), labels)
    assert before == pytest.approx(0.36, abs=0.03) and after > before + 0.08


@pytest.mark.parametrize(
    "step",
    [Centred(), WithoutMeanDirection(), WithoutTop(2), ScaledAxes(0.25), Drawn(5, most=50)],
    ids=lambda step: type(step).__name__,
)
def test_vectors_may_be_read_from_a_file_in_parts(step, tmp_path, monkeypatch):
    vectors, _ = clusters(4, rows=150)
    np.save(tmp_path / "vectors.npy", vectors)
    whole = fit_maps(vectors, [step])
    monkeypatch.setattr(fitted_maps, "_CHUNK", 64)
    (parts,) = fit_maps(np.load(tmp_path / "vectors.npy", mmap_mode="r"), [step])
    np.testing.assert_allclose(parts.matrix, whole[0].matrix, rtol=0, atol=1e-10)
    np.testing.assert_allclose(parts.bias, whole[0].bias, rtol=0, atol=1e-10)


def test_a_map_to_another_models_vectors_finds_the_turn_between_them(monkeypatch):
    monkeypatch.setattr(fitted_maps, "_CHUNK", 64)
    vectors, _ = clusters(5, rows=200)
    turn = np.linalg.qr(np.random.default_rng(6).normal(size=(24, 24)))[0][:, :16]
    (found,) = fit_maps(vectors, [Towards(vectors @ turn, ridge=1e-6)])
    cosines = (found(vectors) * unit(vectors @ turn)).sum(axis=1)
    assert found.matrix.shape == (24, 16) and cosines.min() > 0.99
    # In the text's own coordinates much of a ridge leaves the vectors where they are.
    (held,) = fit_maps(vectors, [Towards(-vectors, ridge=1e9, towards_identity=True)])
    np.testing.assert_allclose(held(vectors), unit(vectors), rtol=0, atol=1e-4)


def test_anchors_hold_the_map_in_its_place():
    vectors, _ = clusters(7)
    general = unit(np.random.default_rng(8).normal(size=(40, 24)))
    moved = []
    for share in (0.0, 0.5, 0.9):
        (found,) = fit_maps(vectors, [Drawn(10, anchors=share)], general)
        moved.append(np.linalg.norm(found(general) - general, axis=1).mean())
    assert moved[0] > 1.2 * moved[1] > 1.2 * moved[2]
    with pytest.raises(UserError, match="Anchors have a share of the rows, and there are none"):
        fit_maps(vectors, [Drawn(10, anchors=0.5)])


def test_half_precision_is_nearly_the_same_and_twice_is_the_same():
    vectors, labels = clusters(9)
    steps = [Centred(), Drawn()]
    first, second = (fit_maps(vectors, steps)[0] for _ in range(2))
    assert first.matrix.tobytes() == second.matrix.tobytes()
    half = fit_maps(vectors.astype(np.float16), steps)[0]
    assert precision(half(vectors), labels) == pytest.approx(
        precision(first(vectors), labels), abs=5e-3
    )


def test_more_components_than_vectors_leave_a_map():
    vectors = np.random.default_rng(10).normal(size=(100, 300)).astype(np.float32)
    for steps in ([Centred(), Drawn(5)], [ScaledAxes(-0.25)], [ScaledAxes(0.25)]):
        (found,) = fit_maps(vectors, steps)
        assert np.isfinite(found(vectors)).all() and found(vectors).any(axis=1).all()


def faulty(value):
    vectors = np.ones((120, 4), dtype=np.float32)
    vectors[110] = value
    return vectors


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (faulty(np.nan), "Vector 111 is not finite; leave its text out"),
        (faulty(0), "Vector 111 is zero, so it has no direction"),
        (np.ones((89, 4), dtype=np.float32), "on 90 vectors or more, found 89"),
        ([[1.0, 2.0]] * 119 + [[1.0]], "vectors of one size, found 1 to 2 components"),
        (np.ones((120, 4), dtype=int), "a matrix of floats, found int64"),
        (np.ones(120), r"found float64 of shape \(120,\)"),
    ],
)
def test_vectors_that_no_map_is_fitted_on_are_told(vectors, message):
    with pytest.raises(UserError, match=message):
        fit_maps(vectors, [Centred()])
