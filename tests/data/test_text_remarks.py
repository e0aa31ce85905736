"""Text that a model will not learn from as its user may think is remarked, with a way out."""

import pytest
from conftest import make_sentences

from st_jtcse.data import text_remarks


class Tokenizer:
    """A word is a token; of a long one every three letters are."""

    def tokenize(self, word):
        return [word[at : at + 3] for at in range(0, len(word), 3)] if len(word) > 9 else [word]

    def __call__(self, texts, **how):
        return {"input_ids": [text.split() for text in texts]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<p class='x'>A dog</p>", "100 % of the lines hold markup; st-train texts FOLDER -o FILE"),
        ("return a;", "100 % of the lines look like code; st-train texts"),
        ("a dog " * 400, "100 % of the lines are longer than 2000 characters"),
        (
            "a dog runs " * 5,
            "100 % of the texts are longer than the 10 tokens that the model reads, and 33 % of "
            "all tokens are lost; raise model.max_seq_length",
        ),
        (
            "the immunoglobulin binds",
            "33 % of the words are broken into 4 pieces or more, most often immunoglobulin;",
        ),
    ],
)
def test_what_is_lost_is_told_with_the_way_out(text, told):
    assert any(remark.startswith(told) for remark in text_remarks(Tokenizer(), [text] * 30, 10))


def test_sentences_are_not_remarked():
    assert text_remarks(Tokenizer(), make_sentences(300, seed=1), 64) == []
    assert text_remarks(None, ["a dog"] * 30, None) == []
