"""Closed forms against float64 by hand, in batches or at once, and as modules that load anywhere."""

import json

import numpy as np
import pytest
import torch
from conftest import make_model, make_sentences, save_encoder
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from st_jtcse.errors import UserError
from st_jtcse.modules import AffineMap, Moments, append_maps
from st_jtcse.modules.closed_forms import (
    centring,
    merged,
    regression,
    scaled_axes,
    without_mean_direction,
    without_top,
)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    mixed = draw.normal(size=(300, 8)) * np.arange(1, 9) @ draw.normal(size=(8, 8))
    return unit(mixed + 4 * draw.normal(size=8))


@pytest.fixture(scope="module")
def moments(rows):
    result = Moments()
    result.add(rows)
    return result


def test_sums_of_batches_are_those_of_all_rows_also_weighted(rows):
    targets = rows[:, :3] ** 2
    whole, parts, doubled = Moments(), Moments(), Moments()
    whole.add(rows, targets, weight=2)
    for start in range(0, 300, 64):
        parts.add(torch.from_numpy(rows[start : start + 64]), targets[start : start + 64], 2)
        for _ in range(2):
            doubled.add(rows[start : start + 64], targets[start : start + 64])
    for other in (parts, doubled):
        for name in ("mean", "covariance", "gram", "cross"):
            found, expected = getattr(other, name), getattr(whole, name)
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert (whole.rows, doubled.rows) == (300, 600)
    np.testing.assert_allclose(whole.covariance, np.cov(rows.T, bias=True), rtol=0, atol=1e-12)
    np.testing.assert_allclose(whole.cross, 2 * rows.T @ targets, rtol=1e-12)


def test_centring_gives_the_text_mean_0_before_its_length(rows, moments):
    fitted = centring(moments)
    expected = unit(rows - rows.mean(axis=0))
    np.testing.assert_allclose(fitted(3 * rows), expected, rtol=0, atol=1e-7)
    assert np.abs((rows @ fitted.matrix + fitted.bias).mean(axis=0)).max() < 1e-14


def test_the_mean_direction_is_projected_out(rows, moments):
    mean = rows.mean(axis=0)
    direction = mean / np.linalg.norm(mean)
    fitted = without_mean_direction(moments)
    expected = unit(rows - (rows @ direction)[:, None] * direction)
    np.testing.assert_allclose(fitted(rows), expected, rtol=0, atol=1e-7)
    assert np.abs(fitted(rows) @ direction).max() < 1e-7 and not fitted.bias.any()


def test_the_strongest_axes_are_those_of_a_singular_value_decomposition(rows, moments):
    centred = rows - rows.mean(axis=0)
    top = np.linalg.svd(centred, full_matrices=False)[2][:2]
    expected = unit(centred - centred @ top.T @ top)
    np.testing.assert_allclose(without_top(moments, 2)(rows), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("exponent", [-0.5, -0.25, 0.0, 0.25])
def test_axes_are_scaled_by_a_power_of_their_variance(rows, moments, exponent):
    centred, ridge = rows - rows.mean(axis=0), 1e-5
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    variances = singular**2 / len(rows)
    scales = (variances + ridge * variances.mean()) ** exponent
    fitted = scaled_axes(moments, exponent, ridge)
    expected = unit(centred @ axes.T * scales @ axes)
    np.testing.assert_allclose(fitted(rows), expected, rtol=0, atol=1e-6)
    # The mean squared length stays, so that a mixture with the identity is one.
    mapped = rows @ fitted.matrix + fitted.bias
    assert (mapped**2).sum() == pytest.approx((centred**2).sum())
    if exponent == -0.5:
        covariance = np.cov(mapped.T, bias=True)
        assert np.abs(covariance / covariance[0, 0] - np.eye(8)).max() < 1e-3


@pytest.mark.parametrize("towards_identity", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 0.7, 1e9])
def test_regression_is_least_squares_with_rows_for_the_ridge(rows, ridge, towards_identity):
    targets = unit(rows @ np.random.default_rng(1).normal(size=(8, 8)) + 0.1 * rows**2)
    moments = Moments()
    moments.add(rows, targets)
    fitted = regression(moments, ridge, towards_identity)
    prior = np.sqrt(ridge) * np.eye(8)
    stood = prior if towards_identity else 0 * prior
    expected = np.linalg.lstsq(
        np.concatenate([rows, prior]), np.concatenate([targets, stood]), rcond=None
    )[0]
    np.testing.assert_allclose(fitted.matrix, expected, rtol=1e-6, atol=1e-9)
    if ridge == 1e9 and towards_identity:
        np.testing.assert_allclose(fitted(rows), rows, rtol=0, atol=1e-6)


def test_rows_without_targets_hold_the_map_at_its_place():
    draw = np.random.default_rng(2)
    # The text lies in the first half of the components, the general sentences in the second.
    text, general = unit(draw.normal(size=(200, 3))), unit(draw.normal(size=(50, 3)))
    text, general = np.pad(text, ((0, 0), (0, 3))), np.pad(general, ((0, 0), (3, 0)))
    mixed = text + 0.5 * general[:1]
    changes = []
    for weight in (0.0, 1.0, 100.0):
        moments = Moments()
        moments.add(mixed, text)
        moments.add(general, weight=weight)
        moved = regression(moments, 1.0, True)(general)
        changes.append(np.linalg.norm(moved - general, axis=1).mean())
    assert changes[0] > 1.2 * changes[1] > 5 * changes[2]


def test_targets_of_another_size_and_mixtures_with_the_identity(rows, moments):
    wide = Moments()
    wide.add(rows, np.concatenate([rows, -rows[:, :2]], axis=1))
    fitted = regression(wide, 0.0, towards_identity=False)
    assert fitted(rows).shape == (300, 10)
    np.testing.assert_allclose(
        fitted(rows), unit(np.concatenate([rows, -rows[:, :2]], axis=1)), rtol=0, atol=1e-6
    )
    with pytest.raises(UserError, match=r"of 10 components are not in the coordinates of .* of 8"):
        regression(wide, 1.0, towards_identity=True)
    with pytest.raises(UserError, match="from 8 to 10 components cannot be mixed"):
        fitted.mixed(0.5)
    centred = centring(moments)
    half = unit(rows - rows.mean(axis=0) / 2)
    np.testing.assert_allclose(centred.mixed(0.5)(rows), half, rtol=0, atol=1e-6)
    np.testing.assert_allclose(centred.mixed(0.0)(rows), rows, rtol=0, atol=1e-7)


def test_maps_without_a_bias_join_the_one_before(rows, moments):
    centred, direction = centring(moments), without_mean_direction(moments)
    one_after_the_other = direction(centred(rows))
    (joined,) = merged([centred, direction])
    np.testing.assert_allclose(joined(rows), one_after_the_other, rtol=0, atol=1e-6)
    assert len(merged([direction, centred, direction, centred])) == 3


def test_the_same_vectors_give_the_same_bytes(rows):
    found = []
    for _ in range(2):
        moments = Moments()
        moments.add(rows.astype(np.float16))
        found.append(scaled_axes(moments, 0.25).matrix.tobytes())
    assert found[0] == found[1]


def test_a_saved_map_is_three_lines_of_numpy(tmp_path, rows, moments):
    fitted = without_top(moments, 1)
    fitted.save(tmp_path / "map.safetensors")
    loaded = AffineMap.load(tmp_path / "map.safetensors")
    by_hand = unit(rows) @ loaded.matrix + loaded.bias
    np.testing.assert_allclose(unit(by_hand), fitted(rows), rtol=0, atol=1e-5)
    (tmp_path / "text").write_text("no map")
    with pytest.raises(UserError, match="cannot be read as safetensors"):
        AffineMap.load(tmp_path / "text")
    save_file({"matrix": np.eye(2, dtype=np.float32)}, tmp_path / "other")
    with pytest.raises(UserError, match=r"arrays 'matrix' \(H, K\) and 'bias' \(K\), found"):
        AffineMap.load(tmp_path / "other")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("maps") / "a", 1, num_hidden_layers=2)


@pytest.fixture
def model(encoder):
    result = make_model(encoder, "mean")
    result.append(Normalize())
    return result


def test_a_model_with_maps_gives_what_they_give_and_loads_anywhere(tmp_path, model):
    sentences = make_sentences(120)
    vectors = model.encode(sentences).astype(np.float64)
    moments = Moments()
    moments.add(vectors, np.roll(vectors, 1, axis=0)[:, :20])
    maps = [centring(moments), regression(moments, 1.0, towards_identity=False)]
    mean = vectors.mean(axis=0)
    weights = np.linalg.solve(
        vectors.T @ vectors + np.eye(32), vectors.T @ np.roll(vectors, 1, axis=0)[:, :20]
    )
    by_hand = unit(unit(vectors - mean) @ weights)
    append_maps(model, maps)
    assert model.get_embedding_dimension() == 20
    np.testing.assert_allclose(model.encode(sentences), by_hand, rtol=0, atol=1e-5)
    model.save_pretrained(str(tmp_path / "saved"))
    listing = json.loads((tmp_path / "saved" / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in listing)
    loaded = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(loaded.encode(sentences), model.encode(sentences))
    assert isinstance(loaded[3].activation_function, torch.nn.Identity)


def test_maps_compute_in_the_models_number_format(model):
    vectors = model.encode(make_sentences(120)).astype(np.float64)
    moments = Moments()
    moments.add(vectors)
    model.bfloat16()
    append_maps(model, [centring(moments)])
    found = model.encode(make_sentences(120), convert_to_tensor=True)
    assert found.dtype == torch.bfloat16
    expected = centring(moments)(vectors)
    assert (found.double().numpy() * expected).sum(axis=1).min() > 0.95


def test_a_model_that_keeps_lengths_says_so_before_they_are_lost(encoder):
    model = make_model(encoder, "mean")
    plain = model.encode(make_sentences(120))
    moments = Moments()
    moments.add(unit(plain.astype(np.float64)))
    with pytest.raises(UserError, match="dot products and distances would change; say normalize="):
        append_maps(model, [centring(moments)])
    assert len(model) == 2
    append_maps(model, [centring(moments)], normalize=True)
    expected = centring(moments)(plain)
    np.testing.assert_allclose(model.encode(make_sentences(120)), expected, rtol=0, atol=1e-5)


def test_models_of_other_sizes_are_refused(encoder, model, moments):
    with pytest.raises(UserError, match="reads vectors of 8 components, and would get 32"):
        append_maps(model, [centring(moments)])
    short = SentenceTransformer(modules=list(model), truncate_dim=8, device="cpu")
    with pytest.raises(UserError, match="truncates its embeddings to 8 components"):
        append_maps(short, [centring(moments)])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: Moments().add(np.zeros(3)), "as rows of a matrix, found an array of shape"),
        (lambda: Moments().add(np.full((2, 3), np.nan)), "Row 1 of the vectors is not finite"),
        (lambda: Moments().add(np.ones((2, 3)), np.ones((3, 3))), "for each of 2 vectors, found 3"),
        (lambda: of(np.ones((2, 3)), np.ones((2, 4))), "of 3 components and targets of 3 as in"),
        (lambda: without_top(of(np.eye(3)), 3), "between 1 and 2 axes, found 3"),
        (lambda: scaled_axes(of(np.eye(3)), 0.25, 0), "a ridge above 0, found 0"),
        (lambda: scaled_axes(of(np.ones((9, 3))), 0.25), "All vectors are the same"),
        (lambda: without_mean_direction(of([[1.0, 0], [-1.0, 0]])), "mean of the vectors is zero"),
        (lambda: regression(of(np.eye(3)[:2]), 0, True), "in 2 of their 3 directions only"),
        (lambda: regression(of(np.eye(3)), -1, True), "a ridge of 0 or more, found -1"),
        (lambda: centring(of(np.eye(3)))(np.eye(4)), r"of 3 components, found .* \(4, 4\)"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_told(given, message):
    with pytest.raises(UserError, match=message):
        given()


def of(*batches):
    moments = Moments()
    for batch in batches:
        moments.add(batch)
    return moments
