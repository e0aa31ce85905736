"""Verdicts: better, equal or worse, with an interval that holds the truth about as often as it
says.
"""

import numpy as np
import pytest
from scipy.stats import norm

from st_jtcse.evaluation.measured_sets import OwnSet
from st_jtcse.evaluation.verdict import WHOLE, Verdict, verdicts


class Encoder:
    """Gives each text the vector that it was told."""

    def __init__(self, vectors):
        self.vectors = vectors

    def get_embedding_dimension(self):
        return 1

    def encode(self, texts, **settings):
        return np.array([[self.vectors[text]] for text in texts], dtype=np.float32)


def hits_of(texts):
    """A set whose items are hits where the text's vector is positive."""

    def measure(vectors):
        hits = vectors[:, 0] > 0
        return lambda items: float(hits[items].mean())

    return OwnSet("hits", "accuracy", (texts,), len(texts), "", measure)


def with_hits(texts, hits):
    return Encoder({text: 1.0 if hit else -1.0 for text, hit in zip(texts, hits)})


@pytest.fixture
def texts():
    return [f"text {index}" for index in range(400)]


def test_a_gain_a_loss_and_no_difference(texts):
    draw = np.random.default_rng(1)
    base = draw.random(400) < 0.7
    better, worse = base | (draw.random(400) < 0.3), base & (draw.random(400) > 0.1)
    own = {"hits": hits_of(texts)}
    words = [
        verdicts(with_hits(texts, base), with_hits(texts, hits), own)[0].word
        for hits in (better, worse, base)
    ]
    assert words == ["better", "worse", "equal"]


def test_the_interval_is_the_normal_one_for_a_mean(texts):
    draw = np.random.default_rng(2)
    base, other = draw.random(400) < 0.6, draw.random(400) < 0.65
    (found,) = verdicts(with_hits(texts, base), with_hits(texts, other), {"hits": hits_of(texts)})
    difference = other.astype(float) - base
    spread = 100 * norm.ppf(0.975) * difference.std() / 20
    assert found.score - found.base == pytest.approx(100 * difference.mean(), abs=1e-9)
    assert found.low == pytest.approx(100 * difference.mean() - spread, abs=0.6)
    assert found.high == pytest.approx(100 * difference.mean() + spread, abs=0.6)


def test_several_sets_have_a_verdict_on_their_mean(texts):
    base, all_right = np.zeros(400, bool), np.ones(400, bool)
    sets = {"first": hits_of(texts[:200]), "second": hits_of(texts)}
    found = verdicts(with_hits(texts, base), with_hits(texts, all_right), sets)
    assert [one.name for one in found] == ["first", "second", WHOLE]
    assert (found[-1].base, found[-1].score, found[-1].word) == (0, 100, "better")


def test_the_same_models_give_the_same_interval_again(texts):
    base, other = (
        with_hits(texts, np.arange(400) % 3 == 0),
        with_hits(texts, np.arange(400) % 2 == 0),
    )
    own = {"hits": hits_of(texts)}
    assert verdicts(base, other, own) == verdicts(base, other, own)


def test_the_sentence():
    told = Verdict("intents", 83.91, 85.5, 0.9, 2.1).sentence
    assert told == "intents: better, 83.91 -> 85.50 (+1.59, 95 % interval +0.90 to +2.10)"
