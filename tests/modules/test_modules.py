import pytest
import torch
from conftest import make_encoder, make_pipeline, make_sentences, make_tokenizer
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from st_jtcse.errors import UserError
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder

SENTENCES = make_sentences(6)


def features_of(model, **requests):
    return {**model.preprocess(SENTENCES), **requests}


@pytest.mark.parametrize("training", [True, False])
def test_tower_outputs_come_on_request_in_either_mode(tower_folders, training):
    model = make_pipeline(tower_folders).train(training)
    encoded = model(features_of(model, tower_outputs=True))
    assert {
        key: tuple(encoded[key].shape)
        for key in ("tower_embedding", "cross_embedding", "tower_pooler")
    } == dict.fromkeys(("tower_embedding", "cross_embedding", "tower_pooler"), (6, 2, 32))
    torch.testing.assert_close(encoded["sentence_embedding"], encoded["tower_embedding"].sum(1))


def test_inference_computes_no_tower_outputs(tower_folders):
    model = make_pipeline(tower_folders)
    encoded = model(features_of(model))
    assert not {"tower_embedding", "cross_embedding", "tower_pooler"} & encoded.keys()


def test_head_equals_the_poolers_of_the_plain_encoders(tower_folders):
    model = make_pipeline(tower_folders)
    encoded = model(features_of(model, tower_outputs=True))
    batch = {k: v for k, v in model.preprocess(SENTENCES).items() if isinstance(v, torch.Tensor)}
    for index, tower in enumerate(model[0].model.to_towers()):
        plain = tower(batch["input_ids"], attention_mask=batch["attention_mask"])
        torch.testing.assert_close(encoded["tower_pooler"][:, index], plain.pooler_output)


def test_head_serves_a_single_tower(tower_folders):
    encoder = Transformer(str(tower_folders[0]))
    model = SentenceTransformer(
        modules=[encoder, PoolerModulusHead(), Pooling(32, "cls")], device="cpu"
    ).eval()
    encoded = model(features_of(model, tower_outputs=True))
    plain = encoder.model(encoded["input_ids"], attention_mask=encoded["attention_mask"])
    torch.testing.assert_close(encoded["tower_embedding"][:, 0], plain.last_hidden_state[:, 0])
    torch.testing.assert_close(encoded["tower_pooler"][:, 0], plain.pooler_output)


def test_head_adds_no_weights(tower_folders):
    model = make_pipeline(tower_folders)
    assert not list(model[1].parameters())
    assert not any(key.startswith("1.") for key in model.state_dict())


def test_head_needs_a_pooler(tower_folders):
    encoder = Transformer(str(tower_folders[0]), model_kwargs={"add_pooling_layer": False})
    with pytest.raises(
        UserError, match="PoolerModulusHead needs an encoder with a pooler, found BertModel without"
    ):
        SentenceTransformer(modules=[encoder, PoolerModulusHead(), Pooling(32, "cls")])


def test_from_towers_takes_models_with_a_tokenizer():
    towers = make_encoder(1), make_encoder(2)
    with pytest.raises(UserError, match="pass tokenizer="):
        TwinCrossAttentionEncoder.from_towers(*towers)
    encoder = TwinCrossAttentionEncoder.from_towers(
        *towers, tokenizer=make_tokenizer(), max_seq_length=7
    )
    assert encoder.max_seq_length == 7
    assert encoder.model.towers[1].pooler.dense.weight.equal(towers[1].pooler.dense.weight)


def test_an_ordinary_model_is_no_twin(tower_folders):
    with pytest.raises(UserError, match="holds a bert model, not a twin encoder"):
        TwinCrossAttentionEncoder(str(tower_folders[0]))
