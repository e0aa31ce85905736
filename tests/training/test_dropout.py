"""A rate given for training reaches every place that models of transformers read theirs from."""

import copy

import pytest
import torch
from conftest import make_encoder
from sentence_transformers.sentence_transformer.modules import Dropout
from transformers import (
    AutoModel,
    EsmConfig,
    GPT2Config,
    ModernBertConfig,
    PersimmonConfig,
    Qwen3Config,
)

from st_jtcse.modules.dropout_rates import set_dropout

SHAPE = dict(
    vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48,
    max_position_embeddings=40, pad_token_id=0, bos_token_id=2, eos_token_id=3,
)  # fmt: skip


def with_rate(model):
    own = copy.deepcopy(model.config.to_dict())
    set_dropout(model, 0.3)
    assert model.config.to_dict() == own
    return model


def test_modules_and_what_stood_in_their_place():
    bert = with_rate(make_encoder(1, hidden_dropout_prob=0.0))
    assert {module.p for module in bert.modules() if isinstance(module, torch.nn.Dropout)} == {0.3}
    layer = with_rate(AutoModel.from_config(ModernBertConfig(**SHAPE))).layers[0]
    assert layer.attn.out_drop.p == layer.mlp.drop.p == layer.attn.attention_dropout == 0.3
    # Another Identity is none of dropout's: the first layer's normalisation.
    assert isinstance(layer.attn_norm, torch.nn.Identity)


def test_numbers_that_are_handed_to_functions():
    attention = (
        with_rate(AutoModel.from_config(Qwen3Config(**SHAPE, num_key_value_heads=2)))
        .layers[0]
        .self_attn
    )
    assert attention.attention_dropout == 0.3
    gpt = with_rate(
        AutoModel.from_config(GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=4))
    )
    assert (gpt.drop.p, gpt.h[0].attn.attn_dropout.p, gpt.h[0].mlp.dropout.p) == (0.3, 0.3, 0.3)


def test_a_yes_or_no_is_no_rate():
    esm = with_rate(AutoModel.from_config(EsmConfig(**SHAPE, token_dropout=True, mask_token_id=4)))
    assert esm.embeddings.token_dropout is True


def test_a_configuration_that_is_read_in_each_step():
    model = AutoModel.from_config(PersimmonConfig(**SHAPE)).train()
    tokens = torch.arange(4, 12).view(1, -1)
    torch.testing.assert_close(model(tokens).last_hidden_state, model(tokens).last_hidden_state)
    attention = with_rate(model).layers[0].self_attn
    assert attention.config.attention_dropout == 0.3 and model.config.attention_dropout == 0.0
    difference = model(tokens).last_hidden_state - model(tokens).last_hidden_state
    assert difference.abs().max() > 1e-3


def test_a_module_of_sentence_transformers_saves_its_own():
    module = Dropout(0.25)
    set_dropout(torch.nn.Sequential(module), 0.3)
    assert module.dropout_layer.p == 0.3 and module.get_config_dict() == pytest.approx(
        {"dropout": 0.25}
    )
