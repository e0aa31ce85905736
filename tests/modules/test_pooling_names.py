"""Every pooling that Sentence-Transformers offers is one of ours, by its name."""

import argparse
import json
from typing import get_args

import pytest
import torch
from conftest import WORDS, make_encoder, make_sentences, make_tokenizer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoModel, AutoTokenizer, GPT2Config

from st_jtcse.cli.arguments import add_pooling
from st_jtcse.errors import UserError
from st_jtcse.modules import load_sentence_transformer
from st_jtcse.pooling_names import SPOKEN, PoolingName, TrainedPoolingName

TEXTS = ["dog", *make_sentences(5, seed=3)]


@pytest.fixture
def tokens(tower_folders):
    """The last hidden states of a plain encoder, of each text alone."""
    encoder, tokenizer = make_encoder(1), AutoTokenizer.from_pretrained(tower_folders[0])
    with torch.inference_mode():
        return [
            encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0] for text in TEXTS
        ]


def test_all_of_sentence_transformers_names_are_there():
    assert set(get_args(PoolingName)) >= set(Pooling.POOLING_MODES) | {"first_last"}
    assert set(get_args(TrainedPoolingName)) == {*get_args(PoolingName), "attention"}
    assert SPOKEN.keys() == set(get_args(TrainedPoolingName))


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        ("lasttoken", lambda rows: rows[-1]),
        ("mean_sqrt_len_tokens", lambda rows: rows.sum(dim=0) / len(rows) ** 0.5),
        (
            "weightedmean",
            lambda rows: (
                sum(place * row for place, row in enumerate(rows, 1))
                / (len(rows) * (len(rows) + 1) / 2)
            ),
        ),
        ("max", lambda rows: rows.amax(dim=0)),
    ],
)
def test_a_batch_of_several_lengths_is_pooled_as_each_sentence_alone(
    tower_folders, tokens, name, by_hand
):
    model = load_sentence_transformer(tower_folders[0], pooling=name, device="cpu")
    expected = torch.stack([by_hand(rows) for rows in tokens])
    torch.testing.assert_close(
        model.encode(TEXTS, convert_to_tensor=True), expected, rtol=1e-5, atol=1e-5
    )


def save_decoder(folder, **said):
    config = GPT2Config(vocab_size=len(WORDS) + 5, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    torch.manual_seed(1)
    model = AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | said))
    return folder


def test_the_last_token_of_a_decoder_padded_on_the_right_is_the_one_before_the_padding(tmp_path):
    model = load_sentence_transformer(save_decoder(tmp_path), pooling="lasttoken", device="cpu")
    together, alone = (
        model.encode(TEXTS, batch_size=size, convert_to_tensor=True) for size in (8, 1)
    )
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            {"padding_side": "left"},
            "The last token of a gpt2 model depends on its padding, which is on the left",
        ),
        ({"pad_token": None}, "The tokenizer.* has no padding token"),
    ],
)
def test_what_cannot_be_padded_has_no_last_token(tmp_path, said, sentence):
    save_decoder(tmp_path, **said)
    with pytest.raises(UserError, match=sentence):
        load_sentence_transformer(tmp_path, pooling="lasttoken", device="cpu")


def test_the_first_token_of_a_decoder_is_no_embedding(tmp_path):
    save_decoder(tmp_path)
    with pytest.raises(
        UserError,
        match=r"The first token of a gpt2 model sees none of those behind it.*'lasttoken'",
    ):
        load_sentence_transformer(tmp_path, pooling="cls", device="cpu")


@pytest.mark.parametrize("name", get_args(PoolingName))
def test_the_flag_takes_every_name(name):
    parser = argparse.ArgumentParser()
    add_pooling(parser, "how a model pools")
    assert parser.parse_args(["--pooling", name]).pooling == name
