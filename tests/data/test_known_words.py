"""The share of a text that a tokenizer does not know, counted by hand."""

from types import SimpleNamespace

import pytest
from conftest import make_tokenizer

from st_jtcse.data import unknown_share
from st_jtcse.errors import UserError


def test_the_share_is_counted_by_hand():
    assert unknown_share(make_tokenizer(), ["the dog runs", "слово"]) == 1 / 4
    assert unknown_share(make_tokenizer(), ["dog слово"] * 3000) == 1 / 2
    assert unknown_share(SimpleNamespace(), ["dog слово"]) == 0.0


def test_text_that_a_tokenizer_does_not_know_is_refused():
    with pytest.raises(UserError, match="does not know 67 % of the text's tokens"):
        unknown_share(make_tokenizer(), ["dog слово", "слово"])
