"""Attention and number format of a model block, at every way that an encoder is loaded."""

import pytest
import torch
from conftest import make_model, make_sentences, save_encoder

from st_jtcse.errors import UserError
from st_jtcse.recipe.schema import ModelSpec, StageSpec, WeightedModelSpec
from st_jtcse.training.models import build_cross_encoder, build_model, load_frozen, start_model

GIVEN = {"attn_implementation": "eager", "dtype": "bfloat16"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("block")
    for number, name in enumerate("ab"):
        save_encoder(root / name, number)
    twin = build_model(
        ModelSpec(towers=[str(root / "a"), str(root / "b")], pooling="cls"),
        str,
        with_head=False,
        seed=0,
    )
    twin.save_pretrained(str(root / "twin"), create_model_card=False)
    return root


@pytest.mark.parametrize(
    "block",
    [
        {"base": "a", "pooling": "mean"},
        {"base": "a", "pooling": "cls", "layers": [0, 2]},
        {"base": "a", "pooling": "cls", "fresh": {"num_hidden_layers": 2}},
        {"base": "twin"},
        {"base": "twin", "tower": 2},
        {"towers": ["a", "b"], "pooling": "cls"},
        {"cross_encoder": "a"},
    ],
    ids=["single", "layers", "fresh", "saved twin", "tower", "towers", "cross-encoder"],
)
def test_a_model_has_the_attention_and_the_format_that_are_asked_for(folders, block):
    build = build_cross_encoder
    if "cross_encoder" not in block:
        build = lambda spec, resolve: build_model(spec, resolve, with_head=False, seed=0)  # noqa: E731
    for given, attention, dtype in (({}, "sdpa", torch.float32), (GIVEN, "eager", torch.bfloat16)):
        model = build(ModelSpec(**block, **given), lambda name: str(folders / name))
        encoder = model[0].model
        layers = [
            layer for layer in encoder.modules() if type(layer).__name__ == "BertSelfAttention"
        ]
        assert {layer.config._attn_implementation for layer in layers} == {attention}
        assert {weight.dtype for weight in encoder.parameters()} == {dtype}


def test_a_teacher_too(folders):
    spec = WeightedModelSpec(model=str(folders / "a"), pooling="cls", **GIVEN)
    encoder = load_frozen(spec, str)[0].model
    assert encoder.config._attn_implementation == "eager" and encoder.dtype == torch.bfloat16


def test_weights_saved_in_half_precision_are_trained_in_single(folders, tmp_path):
    make_model(folders / "a").half().save_pretrained(str(tmp_path), create_model_card=False)

    def start(loss, **model):
        block = {
            "name": "s",
            "model": {"base": str(tmp_path), **model},
            "loss": loss and {"type": loss},
        }
        return start_model(StageSpec.model_validate(block), str, 0).dtype

    assert start(None) == start(None, dtype="auto") == torch.float16
    assert (
        start("SimCSELoss") == torch.float32
        and start("SimCSELoss", dtype="bfloat16") == torch.bfloat16
    )
    with pytest.raises(UserError, match="Stage 's': weights in float16 cannot be trained"):
        start("SimCSELoss", dtype="auto")


def test_eager_attention_gives_the_same_embeddings(folders):
    one, other = (
        load_frozen(
            WeightedModelSpec(model=str(folders / "a"), pooling="cls", attn_implementation=name),
            str,
        )
        for name in ("eager", "sdpa")
    )
    texts = make_sentences(4)
    torch.testing.assert_close(
        torch.tensor(one.encode(texts)), torch.tensor(other.encode(texts)), rtol=0, atol=1e-5
    )
