"""Vectors that a run recalls are those that its models would encode."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from conftest import make_sentences, save_encoder
from sentence_transformers import SentenceTransformer

from st_jtcse.evaluation.recalled_vectors import (
    Recalled,
    encode_recalled,
    not_recalling,
    recalling,
)

TEXTS = make_sentences(6)
OTHERS = make_sentences(12)[6:]


class Counted:
    """A model, and how often it was run."""

    def __init__(self, model):
        self.model, self.passes = model, 0
        model[0].register_forward_hook(self._count)

    def _count(self, *_):
        self.passes += 1

    def encode(self, texts=TEXTS, **how):
        how = {"batch_size": 64, "show_progress_bar": False, **how}
        return encode_recalled(self.model, partial(self.model.encode, **how), texts)


@pytest.fixture
def counted(tmp_path):
    save_encoder(tmp_path / "model", 1)
    return Counted(SentenceTransformer(str(tmp_path / "model"), device="cpu"))


def test_the_same_texts_are_encoded_once_and_nobody_changes_what_is_kept(counted):
    with recalling():
        first = counted.encode()
        expected = first.copy()
        first[:] = 0.0
        second = counted.encode()
        second[:] = 1.0
        assert np.array_equal(counted.encode(), expected)
        assert counted.passes == 1


@pytest.mark.parametrize(
    "other", [{"texts": OTHERS}, {"texts": TEXTS[::-1]}, {"batch_size": 3}, {"prompt": "query: "}]
)
def test_other_texts_and_other_ways_are_encoded(counted, other):
    plain = counted.encode(**other)
    with recalling():
        counted.encode()
        counted.passes = 0
        assert np.array_equal(counted.encode(**other), plain)
        assert counted.passes > 0


def test_a_model_that_is_another_object_is_recalled_by_its_weights(counted):
    with recalling():
        found = counted.encode()
        twin = Counted(copy.deepcopy(counted.model))
        twin.passes = 0
        assert np.array_equal(twin.encode(), found)
        assert twin.passes == 0


@pytest.mark.parametrize("how", ["written", "loaded", "another", "length"])
def test_a_changed_model_is_encoded_anew(counted, how):
    model = counted.model
    with recalling():
        before = counted.encode()
        if how == "written":
            with torch.no_grad():
                model[0].auto_model.embeddings.word_embeddings.weight.mul_(1.5)
        elif how == "loaded":
            changed = {name: value * 1.5 for name, value in model.state_dict().items()}
            model.load_state_dict(changed)
        elif how == "another":
            weight = model[0].auto_model.embeddings.word_embeddings
            weight.weight = torch.nn.Parameter(weight.weight * 1.5)
        else:
            model.max_seq_length = 3
        after = counted.encode()
    assert counted.passes == 2
    assert not np.array_equal(before, after)
    assert np.array_equal(after, counted.encode())


def test_training_recalls_nothing_and_is_noticed_afterwards(counted):
    with recalling():
        before = counted.encode()
        with not_recalling():
            # Past what counts the changes of a tensor.
            counted.model[0].auto_model.embeddings.word_embeddings.weight.data.mul_(1.5)
            counted.encode()
            counted.encode()
            assert counted.passes == 3
        assert not np.array_equal(counted.encode(), before)
        assert counted.passes == 4


def test_a_forward_of_its_own_is_not_recalled(counted):
    with recalling():
        plain = counted.encode()
        forward = counted.model.forward

        def scaled(*given, **more):
            found = forward(*given, **more)
            return {**found, "sentence_embedding": 2 * found["sentence_embedding"]}

        counted.model.forward = scaled
        assert np.allclose(counted.encode(), 2 * plain)
        del counted.model.forward
        assert np.array_equal(counted.encode(), plain)


def test_nothing_is_recalled_outside_of_a_run(counted):
    counted.encode()
    with recalling():
        counted.encode()
    counted.encode()
    assert counted.passes == 3


def test_the_oldest_is_forgotten_beyond_the_bound(counted):
    model, size = counted.model, counted.encode().nbytes
    counted.passes = 0
    by = partial(model.encode, batch_size=64, show_progress_bar=False)
    recalled = Recalled(most=2 * size)
    for texts in (TEXTS, OTHERS, TEXTS[::-1]):
        recalled.encode(model, by, texts)
    assert recalled.size == 2 * size
    for texts, passes in ((OTHERS, 3), (TEXTS[::-1], 3), (TEXTS, 4), ([*TEXTS, *OTHERS] * 2, 5)):
        recalled.encode(model, by, texts)
        assert counted.passes == passes
    assert recalled.size == 2 * size
