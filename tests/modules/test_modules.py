import pytest
import torch
from conftest import make_encoder, make_model, make_pipeline, make_sentences, make_tokenizer
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

from st_jtcse.errors import UserError
from st_jtcse.losses import JTCSELoss
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder, save_for_inference
from st_jtcse.modules.loading import load_sentence_transformer
from st_jtcse.modules.twin_encoder import join_towers

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


def test_a_twin_of_normalised_towers_has_length_1(tower_folders, tmp_path):
    """Dot products are cosines then, as of the models that it was joined of."""
    for folder, name in zip(tower_folders, "ab"):
        tower = make_model(folder, "mean")
        tower.append(Normalize())
        tower.save_pretrained(str(tmp_path / name), create_model_card=False)
    join_towers(tmp_path / "a", tmp_path / "b", tmp_path / "twin")
    twin = SentenceTransformer(str(tmp_path / "twin"))
    vectors = twin.encode(["one dog", "two cats", "a bird reads"], convert_to_tensor=True)
    assert isinstance(twin[-1], Normalize)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(vectors @ vectors.T, twin.similarity(vectors, vectors))
    parts = [SentenceTransformer(str(tmp_path / name)) for name in "ab"]
    one, two = (part.encode(["one dog"], convert_to_tensor=True) for part in parts)
    torch.testing.assert_close(vectors[:1], torch.nn.functional.normalize(one + two))


def test_a_pooling_that_would_change_nothing_is_refused(tower_folders, tmp_path):
    encoder = TwinCrossAttentionEncoder.from_towers(*tower_folders)
    size = encoder.get_embedding_dimension()
    model = SentenceTransformer(modules=[encoder, PoolerModulusHead(), Pooling(size, "mean")])
    told = "A twin_encoder pools its encoders itself, by 'cls', and gives one row"
    with pytest.raises(UserError, match=told):
        JTCSELoss(model)
    with pytest.raises(UserError, match=told):
        save_for_inference(model, tmp_path / "twin")
    assert not (tmp_path / "twin").exists()
    model.save_pretrained(str(tmp_path / "raw"), create_model_card=False)
    del model[1]
    model.save_pretrained(str(tmp_path / "raw"), create_model_card=False)
    listing = (tmp_path / "raw" / "modules.json").read_text()
    (tmp_path / "raw" / "modules.json").write_text(
        listing.replace(
            "st_jtcse.modules.twin_encoder.TwinCrossAttentionEncoder",
            "sentence_transformers.base.modules.transformer.Transformer",
        )
    )
    with pytest.raises(UserError, match=told):
        load_sentence_transformer(str(tmp_path / "raw"))


def test_a_twin_shows_one_table_of_words_and_takes_none_for_both(tower_folders):
    twin = TwinCrossAttentionEncoder.from_towers(*tower_folders).model
    assert twin.get_input_embeddings() is twin.towers[0].embeddings.word_embeddings
    with pytest.raises(NotImplementedError, match="one by one"):
        twin.resize_token_embeddings(100)
