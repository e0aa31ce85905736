"""Each text is encoded once, memory is bounded, and unusable embeddings are refused."""

import numpy as np
import pytest
import torch

from st_jtcse.errors import UserError
from st_jtcse.evaluation.unique_texts import UniqueTexts


class Encoder:
    """Maps a text to its length and its first character, and remembers what it was given."""

    def __init__(self):
        self.asked = []

    def __call__(self, texts):
        self.asked.append(list(texts))
        return torch.tensor([[len(text), ord(text[0])] for text in texts], dtype=torch.float32)


def test_each_text_is_encoded_once_and_comes_back_in_its_place():
    encode, texts = Encoder(), UniqueTexts(2)
    vectors = texts.encode(["bb", "a", "bb"], encode)
    assert vectors.tolist() == [[2, 98], [1, 97], [2, 98]]
    assert texts.encode(["ccc", "a"], encode).tolist() == [[3, 99], [1, 97]]
    assert encode.asked == [["bb", "a"], ["ccc"]]


def test_kinds_do_not_share_vectors():
    encode, texts = Encoder(), UniqueTexts(2)
    texts.encode(["a"], encode, kind="query")
    texts.encode(["a"], encode, kind="document")
    assert encode.asked == [["a"], ["a"]]


def test_with_too_many_texts_the_earlier_are_forgotten():
    encode, texts = Encoder(), UniqueTexts(2, remembered=3)
    texts.encode(["a", "b"], encode)
    texts.encode(["c", "d"], encode)
    assert texts.encode(["a", "c"], encode).tolist() == [[1, 97], [1, 99]]
    assert encode.asked == [["a", "b"], ["c", "d"], ["a"]]


def test_more_texts_than_are_remembered_are_encoded_and_not_kept():
    encode, texts = Encoder(), UniqueTexts(2, remembered=2)
    assert texts.encode(["a", "b", "c", "a"], encode).shape == (4, 2)
    texts.encode(["a"], encode)
    assert encode.asked == [["a", "b", "c"], ["a"]]


def test_vectors_that_are_not_finite_are_refused_with_their_text():
    with pytest.raises(UserError, match=r"NaN or infinite values, e\.g\. for 'two'"):
        UniqueTexts(2).encode(["one", "two"], lambda texts: np.array([[0, 1], [np.nan, 0]]))


def test_vectors_of_another_size_than_configured_are_refused():
    with pytest.raises(UserError, match=r"shape \(1, 2\) where \(1, 3\) was expected"):
        UniqueTexts(3).encode(["one"], Encoder())
