"""What a stage's model may be given and be scored on."""

import json

import pytest
from conftest import make_model, make_sentences, save_encoder
from sentence_transformers import CrossEncoder

from st_jtcse.data import Pairs
from st_jtcse.errors import UserError
from st_jtcse.recipe.schema import ModelSpec
from st_jtcse.training.model_kinds import BI_ENCODER, CROSS_ENCODER
from st_jtcse.training.models import build_cross_encoder, build_model


@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_a_correlation_that_is_not_defined_is_a_fault(tower_folders):
    left, right = make_sentences(6, 1), make_sentences(6, 2)
    models = (
        make_model(tower_folders[0]),
        CrossEncoder(str(tower_folders[0]), num_labels=1, device="cpu"),
    )
    for kind, model in zip((BI_ENCODER, CROSS_ENCODER), models):
        sets = {
            name: kind.evaluator(name, Pairs(left, right, gold, "0")) for name, gold in GOLD.items()
        }
        assert -100 <= kind.scores(model, {"graded": sets["graded"]})["graded"] <= 100
        with pytest.raises(
            UserError, match="The model's correlation on 'equal' is not defined, as where all"
        ):
            kind.scores(model, sets)


GOLD = {"graded": [0.0, 0.1, 0.3, 0.5, 0.8, 1.0], "equal": [0.5] * 6}


@pytest.mark.parametrize(
    "spec",
    [
        {"base": "A"},
        {"base": "A", "pooling": "mean"},
        {"base": "A", "pooling": "mean", "fresh": {"num_hidden_layers": 2}},
        {"base": "A", "layers": [0, 1]},
        {"towers": ["A", "A"]},
        {"members": [{"model": "A"}, {"model": "A"}]},
        {"cross_encoder": "A"},
    ],
    ids=str,
)
def test_a_length_without_positions_is_refused_in_every_model_block(spec, model_folders):
    def build(length):
        given = ModelSpec.model_validate(spec | {"max_seq_length": length})
        if given.cross_encoder:
            return build_cross_encoder(given, resolve)
        return build_model(given, resolve, with_head=False, seed=1)

    def resolve(name):
        return str(model_folders[0])

    assert build(40) is not None
    with pytest.raises(
        UserError,
        match="max_seq_length of 41 is more than the 40 tokens for which the model has pos",
    ):
        build(41)


def test_a_length_that_came_with_a_model_ends_with_its_positions(tmp_path):
    """RoBERTa's own may say more than it has positions for: 40, the first of which is that of
    padding.
    """
    make_model(save_encoder(tmp_path / "encoder", 1, "roberta")).save_pretrained(
        str(tmp_path / "model")
    )
    settings = tmp_path / "model" / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": 512}))
    for keys in ({}, {"layers": [0, 1]}):
        spec = ModelSpec.model_validate({"base": str(tmp_path / "model"), **keys})
        assert build_model(spec, str, with_head=False, seed=1).max_seq_length == 39
