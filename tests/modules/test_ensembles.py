"""Ensembles as Sentence-Transformers models: one tokenizer, several tokenizers, and the choice
between them.
"""

import json

import numpy as np
import pytest
import torch
from conftest import (
    WORDS,
    make_encoder,
    make_model,
    make_pipeline,
    make_sentences,
    make_tokenizer,
    save_encoder,
)
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoModel

from st_jtcse.errors import UserError
from st_jtcse.modules import (
    EnsembleEncoder,
    MultiTokenizerEnsemble,
    ensemble_of,
    save_for_inference,
    to_inference,
)
from st_jtcse.modules.inference import FLAG_NEEDED

SENTENCES = make_sentences(12)
WEIGHTS = [0.3, 0.7]


def load(folder, **options):
    return SentenceTransformer(str(folder), device="cpu", **options)


def cls_embeddings(folder, sentences=SENTENCES):
    encoder = Transformer(str(folder))
    return SentenceTransformer(modules=[encoder, Pooling(32, "cls")], device="cpu").encode(
        sentences
    )


def largest_difference(found, expected):
    return np.abs(found - expected).max()


@pytest.fixture
def twin_folder(tower_folders, tmp_path):
    save_for_inference(make_pipeline(tower_folders), tmp_path / "twin")
    return tmp_path / "twin"


@pytest.fixture
def roberta_folder(tmp_path):
    """An encoder of another family, vocabulary and depth than the tower folders'."""
    folder = tmp_path / "roberta"
    make_encoder(3, "roberta", vocab_size=60, num_hidden_layers=2).save_pretrained(folder)
    make_tokenizer([*reversed(WORDS), "cow"]).save_pretrained(folder)
    return folder


def test_ensemble_encoder_embeds_the_weighted_sum(tower_folders):
    encoder = EnsembleEncoder.from_members(tower_folders, WEIGHTS, max_seq_length=9)
    assert encoder.max_seq_length == 9 and encoder.get_embedding_dimension() == 32
    encoder.max_seq_length = 32
    model = SentenceTransformer(modules=[encoder, Pooling(32, "cls")], device="cpu")
    expected = sum(
        weight * cls_embeddings(folder) for weight, folder in zip(WEIGHTS, tower_folders)
    )
    assert largest_difference(model.encode(SENTENCES), expected) < 1e-6


def test_ensemble_encoder_loads_from_its_folder_and_no_other(tower_folders, tmp_path):
    save_for_inference(ensemble_of(tower_folders, WEIGHTS, pooling="cls"), tmp_path / "ensemble")
    assert EnsembleEncoder(str(tmp_path / "ensemble")).model.config.weights == WEIGHTS
    with pytest.raises(UserError, match="holds a bert model, not an ensemble encoder"):
        EnsembleEncoder(str(tower_folders[0]))


def test_ensemble_encoder_takes_models_with_a_tokenizer():
    members = [make_encoder(1), make_encoder(2)]
    with pytest.raises(
        UserError, match="Encoders given as models come without a tokenizer; pass tokenizer="
    ):
        EnsembleEncoder.from_members(members)
    encoder = EnsembleEncoder.from_members(members, tokenizer=make_tokenizer())
    assert encoder.model.config.weights == [1.0, 1.0]


def test_fused_with_a_twin_its_towers_share_the_weight(tower_folders, twin_folder, tmp_path):
    other = save_encoder(tmp_path / "other", 5, num_hidden_layers=2)
    fused = ensemble_of([twin_folder, other], WEIGHTS, pooling="cls")
    assert fused[0].model.config.weights == [0.3, 0.3, 0.7]
    towers = sum(cls_embeddings(folder) for folder in tower_folders)
    assert (
        largest_difference(fused.encode(SENTENCES), 0.3 * towers + 0.7 * cls_embeddings(other))
        < 1e-6
    )


def test_six_encoders_are_summed_after_saving_too(tmp_path):
    folders = [save_encoder(tmp_path / str(seed), seed, num_hidden_layers=2) for seed in range(6)]
    save_for_inference(ensemble_of(folders, pooling="cls"), tmp_path / "ensemble")
    expected = sum(cls_embeddings(folder) for folder in folders)
    assert largest_difference(load(tmp_path / "ensemble").encode(SENTENCES), expected) < 1e-6


def test_several_tokenizers_give_the_weighted_sum_of_what_the_members_encode(
    twin_folder, roberta_folder, tmp_path
):
    members = [
        load(twin_folder),
        SentenceTransformer(modules=[Transformer(str(roberta_folder)), Pooling(32, "mean")]),
    ]
    expected = sum(
        weight * member.encode(SENTENCES, batch_size=5) for weight, member in zip(WEIGHTS, members)
    )
    model = SentenceTransformer(modules=[MultiTokenizerEnsemble(members, WEIGHTS)], device="cpu")
    assert largest_difference(model.encode(SENTENCES), expected) < 1e-6
    assert largest_difference(model.encode(SENTENCES, batch_size=2), expected) < 1e-6
    save_for_inference(model, tmp_path / "fused")
    loaded = load(tmp_path / "fused", trust_remote_code=True)
    assert np.array_equal(loaded.encode(SENTENCES), model.encode(SENTENCES))
    assert np.array_equal(to_inference(model).encode(SENTENCES), model.encode(SENTENCES))
    save_for_inference(loaded, tmp_path / "again")
    again = load(tmp_path / "again", trust_remote_code=True)
    assert np.array_equal(again.encode(SENTENCES), model.encode(SENTENCES))


def test_without_the_flag_the_message_names_it(tower_folders, roberta_folder, tmp_path):
    save_for_inference(
        ensemble_of([tower_folders[0], roberta_folder], pooling="cls"), tmp_path / "fused"
    )
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        load(tmp_path / "fused")


def test_each_member_is_saved_alone_and_as_inference_needs_it(
    tower_folders, roberta_folder, tmp_path
):
    members = [make_pipeline(tower_folders), ensemble_of([roberta_folder], pooling="cls")]
    model = SentenceTransformer(modules=[MultiTokenizerEnsemble(members)], device="cpu")
    save_for_inference(model, tmp_path / "fused")
    for number, member in enumerate(members, start=1):
        folder = tmp_path / "fused" / f"member_{number}"
        assert (folder / "model.safetensors").is_file()
        types = [
            entry["type"].split(".")[0]
            for entry in json.loads((folder / "modules.json").read_text())
        ]
        assert types == ["sentence_transformers"] * 2
        assert np.array_equal(load(folder).encode(SENTENCES), member.encode(SENTENCES))
    names = [path.name for path in (tmp_path / "fused").rglob("*")]
    assert not any(name.endswith((".bin", ".pt", ".pkl")) for name in names)


def test_the_card_says_in_one_sentence_how_several_tokenizers_load(
    tower_folders, roberta_folder, tmp_path
):
    model = ensemble_of([tower_folders[0], roberta_folder], pooling="cls")
    for folder in ("first", "second"):
        save_for_inference(model, tmp_path / folder)
        assert (tmp_path / folder / "README.md").read_text().count(FLAG_NEEDED) == 1
        model = load(tmp_path / folder, trust_remote_code=True)
    save_for_inference(model, tmp_path / "third", create_model_card=False)
    assert not (tmp_path / "third" / "README.md").exists()


def test_the_choice_follows_the_tokenizers_and_the_pooling(tower_folders, roberta_folder):
    def mean():
        return SentenceTransformer(
            modules=[Transformer(str(tower_folders[1])), Pooling(32, "mean")], device="cpu"
        )

    assert type(ensemble_of(tower_folders, pooling="cls")[0]) is EnsembleEncoder
    for members in ([tower_folders[0], roberta_folder], [tower_folders[0], mean()]):
        assert type(ensemble_of(members, pooling="cls")[0]) is MultiTokenizerEnsemble
    prompted = ensemble_of([tower_folders[0]], pooling="cls")
    prompted.prompts, prompted.default_prompt_name = {"always": "the "}, "always"
    fused = ensemble_of([prompted, mean()], WEIGHTS)
    expected = 0.3 * prompted.encode(SENTENCES) + 0.7 * mean().encode(SENTENCES)
    assert largest_difference(fused.encode(SENTENCES), expected) < 1e-6
    assert largest_difference(prompted.encode(SENTENCES), cls_embeddings(tower_folders[0])) > 1e-3


def test_the_shortest_limit_holds_for_one_tokenizer_and_each_its_own_for_several(
    tower_folders, roberta_folder
):
    short = ensemble_of([tower_folders[0]], max_seq_length=6, pooling="cls")
    assert ensemble_of([short, tower_folders[1]], pooling="cls").max_seq_length == 6
    fused = ensemble_of([short, roberta_folder], pooling="cls")
    assert [member.max_seq_length for member in fused[0].members] == [6, 32]
    assert fused.max_seq_length == 6
    assert [
        member.max_seq_length
        for member in ensemble_of([short, roberta_folder], max_seq_length=8, pooling="cls")[
            0
        ].members
    ] == [
        8,
        8,
    ]


def test_several_tokenizers_load_in_a_chosen_dtype(tower_folders, roberta_folder, tmp_path):
    save_for_inference(
        ensemble_of([tower_folders[0], roberta_folder], pooling="cls"), tmp_path / "fused"
    )
    loaded = load(tmp_path / "fused", trust_remote_code=True, model_kwargs={"dtype": "bfloat16"})
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("count", [0, 1])
def test_members_and_weights_of_several_tokenizers_are_counted(tower_folders, count):
    members = [load(folder) for folder in tower_folders[:count]]
    message = "one weight per member, found 2 for 1" if count else "at least one member, found none"
    with pytest.raises(UserError, match=message):
        MultiTokenizerEnsemble(members, WEIGHTS)
    with pytest.raises(UserError, match=message):
        ensemble_of(members, WEIGHTS)


def test_embeddings_of_different_sizes_are_refused(tower_folders, tmp_path):
    narrow = save_encoder(tmp_path / "narrow", 5, "roberta", hidden_size=16, vocab_size=60)
    message = "embeddings differ in size: 32 in the first, 16 in no. 2; a sum needs one size"
    with pytest.raises(UserError, match=message):
        ensemble_of([tower_folders[0], narrow], pooling="cls")
    with pytest.raises(
        UserError, match=r"hidden_size: 32 in the first, 16 in no\. 2; a sum needs one size"
    ):
        ensemble_of(
            [tower_folders[0], save_encoder(tmp_path / "other", 5, hidden_size=16)], pooling="cls"
        )


def test_a_member_that_cuts_its_embeddings_is_refused(tower_folders):
    with pytest.raises(UserError, match=r"Member no\. 1 cuts its embeddings to 8"):
        MultiTokenizerEnsemble([load(tower_folders[0], truncate_dim=8)])


def test_a_saved_ensemble_is_a_member_again(tower_folders, roberta_folder, tmp_path):
    save_for_inference(ensemble_of(tower_folders, WEIGHTS, pooling="cls"), tmp_path / "one")
    one = ensemble_of([tmp_path / "one", tower_folders[0]], [2.0, 1.0], pooling="cls")
    assert one[0].model.config.weights == [0.6, 1.4, 1.0]
    save_for_inference(
        ensemble_of([tmp_path / "one", roberta_folder], pooling="cls"), tmp_path / "several"
    )
    several = ensemble_of(
        [tmp_path / "several", make_model(tower_folders[0])], trust_remote_code=True
    )
    expected = (
        load(tmp_path / "one").encode(SENTENCES)
        + cls_embeddings(roberta_folder)
        + cls_embeddings(tower_folders[0])
    )
    assert largest_difference(several.encode(SENTENCES), expected) < 2e-6


def test_the_file_beside_the_weights_is_the_packages(tower_folders, tmp_path):
    save_for_inference(ensemble_of(tower_folders, pooling="cls"), tmp_path / "ensemble")
    from st_jtcse.towers import modeling_ensemble_encoder

    with open(modeling_ensemble_encoder.__file__, encoding="utf-8") as file:
        assert (tmp_path / "ensemble" / "modeling_ensemble_encoder.py").read_text(
            encoding="utf-8"
        ) == file.read()
    assert AutoModel.from_pretrained(tmp_path / "ensemble").config.model_type == "ensemble_encoder"
