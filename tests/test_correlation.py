"""Spearman's correlation is scipy's in both of its forms, however many values are equal."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sentence_transformers.util import cos_sim

from st_jtcse.correlation import pair_cosines, spearman, spearman_of_draws

# Of few different values, so that most are equal.
values = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=2, max_size=30)


@settings(max_examples=300, derandomize=True, deadline=None, database=None)
@given(pairs=values, seed=st.integers(0, 9))
def test_a_draw_has_scipy_s_correlation(pairs, seed):
    first, second = (np.array(side, dtype=np.float32) for side in zip(*pairs))
    of_draw = spearman_of_draws(first, second)
    everything = np.arange(len(pairs))
    for items in (everything, np.random.default_rng(seed).choice(everything, len(pairs))):
        found, expected = of_draw(items), spearman(first[items], second[items])
        assert math.isnan(found) == math.isnan(expected)
        if not math.isnan(expected):
            assert found == pytest.approx(expected, abs=1e-12)
            assert expected == spearmanr(first[items], second[items]).statistic


def test_the_correlation_of_a_constant_is_none():
    assert math.isnan(spearman([1.0, 1.0, 1.0], [1, 2, 3]))
    assert math.isnan(spearman([1, 2, 3], [0.5, 0.5, 0.5]))


def test_cosines_are_sentence_transformers_own():
    draw = np.random.default_rng(0)
    first, second = (draw.normal(size=(20, 8)).astype(np.float32) for _ in range(2))
    first[0] = 0.0
    expected = cos_sim(first, second).diagonal().numpy()
    assert pair_cosines(first, second) == pytest.approx(expected, abs=1e-6)
    assert pair_cosines(first, second)[0] == 0.0
