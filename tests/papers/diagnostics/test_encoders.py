"""What is seen inside encoders equals what transformers and explicit sums give; the models stay as
they are.
"""

import numpy as np
import pytest
import torch
from conftest import WORDS, make_sentences, make_tokenizer, save_encoder
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModel, PreTrainedTokenizerFast

from st_jtcse.errors import UserError
from st_jtcse.hashing import weights_sha256
from st_jtcse.modules import EnsembleEncoder, MultiTokenizerEnsemble, TwinCrossAttentionEncoder
from st_jtcse.papers.diagnostics import (
    attention_mass,
    attention_sink,
    cls_energy,
    cls_energy_by_layer,
    encoders_of,
    modulus,
    without_layer_norms,
)

SENTENCES = make_sentences(40)


def with_pooling(encoder):
    return SentenceTransformer(
        modules=[encoder, Pooling(encoder.get_embedding_dimension(), "cls")], device="cpu"
    )


def single(folder):
    return with_pooling(Transformer(str(folder)))


def twin(folders):
    return with_pooling(TwinCrossAttentionEncoder.from_towers(*folders))


@pytest.fixture(scope="module")
def roberta_folder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("roberta"), 3, "roberta")


def layer_by_layer(folder, sentence):
    """Hidden state, attention matrix and attention context of every layer, in float64, from the
    weights alone.
    """
    model = AutoModel.from_pretrained(folder).double().eval()
    features = make_tokenizer()(sentence, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        output = model(**features, output_hidden_states=True)
        found = []
        for layer, hidden in zip(model.encoder.layer, output.hidden_states):
            parts = [
                projection(hidden[0]).unflatten(-1, (4, 8)).transpose(0, 1)
                for projection in (
                    layer.attention.self.query,
                    layer.attention.self.key,
                    layer.attention.self.value,
                )
            ]
            attention = (parts[0] @ parts[1].transpose(1, 2) / 8**0.5).softmax(dim=-1)
            found.append((attention, (attention @ parts[2]).transpose(0, 1).flatten(1)))
    return found, output


def energies(folder):
    def of_sentence(sentence):
        contexts = [context for _, context in layer_by_layer(folder, sentence)[0]]
        return [(context[0].norm() / context[1:].norm()).item() for context in contexts]

    return np.array([of_sentence(sentence) for sentence in SENTENCES])


def test_cls_energy_by_hand_leaves_padding_out():
    context = torch.tensor([[[3.0, 4.0], [1.0, 2.0], [2.0, 2.0], [99.0, 99.0]]])
    mask = torch.tensor([[True, True, True, False]])
    assert cls_energy(context, mask).item() == pytest.approx(5 / 13**0.5, abs=1e-15)


def test_attention_mass_by_hand():
    rows = torch.tensor(
        [[[0.5, 0.2, 0.2, 0.1], [0.1, 0.4, 0.4, 0.1], [0.6, 0.0, 0.0, 0.4], [0.4, 0.2, 0.2, 0.2]]]
    )
    mass = attention_mass(rows.double(), ["CLS", "words", "words", "SEP"])
    np.testing.assert_allclose(mass, [1.6 / 4, 0.8 / 4, 0.0, 1.6 / 4])


# BERT's own numbers depend on padding on the left, which shifts its positions.
@pytest.mark.parametrize(
    ("family", "padding"), [("bert", "right"), ("roberta", "right"), ("roberta", "left")]
)
def test_a_single_encoder_is_seen_as_it_is(family, padding, tower_folders, roberta_folder):
    folder = tower_folders[0] if family == "bert" else roberta_folder
    model = single(folder)
    model.tokenizer.padding_side = padding
    (encoder,) = encoders_of(model)
    assert encoder.label == ""
    expected = energies(folder)
    found = cls_energy_by_layer(encoder, SENTENCES)
    np.testing.assert_allclose(found.mean, expected.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.deviation, expected.std(axis=0), rtol=1e-4)

    moduli = modulus(encoder, SENTENCES)
    outputs = [layer_by_layer(folder, sentence)[1] for sentence in SENTENCES]
    for norms, states in (
        (moduli.hidden, [output.last_hidden_state[0, 0] for output in outputs]),
        (moduli.pooler, [output.pooler_output[0] for output in outputs]),
    ):
        np.testing.assert_allclose(
            np.sort(norms), np.sort([state.norm().item() for state in states]), rtol=1e-5
        )
    assert moduli.note is None


def test_moduli_without_layer_norms_are_those_of_an_encoder_that_has_none(tower_folders):
    model = single(tower_folders[0])
    (encoder,), before = encoders_of(model), weights_sha256(model)
    plain = AutoModel.from_pretrained(tower_folders[0]).eval()
    plain.encoder.layer[-1].output.LayerNorm = torch.nn.Identity()
    bare = without_layer_norms(encoder, f"encoder.layer.{len(plain.encoder.layer) - 1}.output.*")
    expected = []
    for sentence in sorted(SENTENCES, key=len):
        ids = torch.tensor([model.tokenizer(sentence)["input_ids"]])
        with torch.no_grad():
            expected.append(plain(ids).last_hidden_state[0, 0].norm().item())
    np.testing.assert_allclose(modulus(bare, SENTENCES).hidden, expected, rtol=1e-5)
    assert bare.label.startswith("without encoder.layer.") and weights_sha256(model) == before
    whole, none = (
        modulus(one, SENTENCES).hidden for one in (encoder, without_layer_norms(encoder, "*"))
    )
    assert not np.allclose(whole, expected, rtol=0.01) and none.std() > whole.std()
    with pytest.raises(
        UserError, match=r"No LayerNorm is called 'layer.7'; they are called embeddings.LayerNorm, "
    ):
        without_layer_norms(encoder, "layer.7")


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_attention_goes_where_the_matrices_say(family, tower_folders, roberta_folder):
    folder = tower_folders[0] if family == "bert" else roberta_folder
    (encoder,) = encoders_of(single(folder))
    sink = attention_sink(encoder, "the dog runs")
    assert sink.tokens == ["[CLS]", "the", "dog", "runs", "[SEP]"]
    assert sink.groups == ["CLS", "words", "words", "words", "SEP"]
    np.testing.assert_allclose(sink.mass.sum(axis=1), 1, atol=1e-6)
    for (attention, _), found in zip(layer_by_layer(folder, "the dog runs")[0], sink.mass):
        received = attention.mean(dim=(0, 1))
        np.testing.assert_allclose(
            found, [received[0], received[4], 0, received[1:4].sum()], atol=1e-6
        )


def test_punctuation_is_told_from_words(tmp_path):
    words = [*WORDS, ".", ",", "'", "2"]
    folder = save_encoder(tmp_path / "encoder", 1, words=words, vocab_size=len(words) + 5)
    (encoder,) = encoders_of(single(folder))
    sink = attention_sink(encoder, "the dog , 2 unknown .")
    assert sink.groups == [
        "CLS",
        "words",
        "words",
        "punctuation",
        "words",
        "words",
        "punctuation",
        "SEP",
    ]
    assert (sink.mass > 0).all()


def test_a_byte_of_a_letter_is_no_punctuation(tmp_path):
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    byte_level = Tokenizer(models.BPE({token: index for index, token in enumerate(alphabet)}, []))
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level.decoder = decoders.ByteLevel()
    byte_level.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
    folder = save_encoder(
        tmp_path / "encoder", 1, "roberta", vocab_size=len(alphabet), pad_token_id=1
    )
    PreTrainedTokenizerFast(
        tokenizer_object=byte_level, model_max_length=32, **names
    ).save_pretrained(folder)
    (encoder,) = encoders_of(single(folder))
    # The letter takes two bytes, the space belongs to the words.
    assert attention_sink(encoder, "é, a").groups == [
        "CLS",
        "words",
        "words",
        "punctuation",
        "words",
        "words",
        "SEP",
    ]


def test_a_twin_shows_both_towers_each_as_it_is_alone(tower_folders):
    encoders = encoders_of(twin(tower_folders))
    assert [encoder.label for encoder in encoders] == ["tower I", "tower II"]
    for encoder, folder in zip(encoders, tower_folders):
        (alone,) = encoders_of(single(folder))
        for find in (cls_energy_by_layer, modulus):
            for name, value in vars(find(alone, SENTENCES)).items():
                assert np.array_equal(getattr(find(encoder, SENTENCES), name), value)
        assert np.array_equal(
            attention_sink(encoder, SENTENCES[0]).mass, attention_sink(alone, SENTENCES[0]).mass
        )


def test_ensembles_show_their_members(tower_folders, roberta_folder):
    ensemble = with_pooling(EnsembleEncoder.from_members(tower_folders, [0.3, 0.7]))
    encoders = encoders_of(ensemble)
    assert [encoder.label for encoder in encoders] == ["member 1", "member 2"]
    np.testing.assert_allclose(
        cls_energy_by_layer(encoders[1], SENTENCES).mean,
        energies(tower_folders[1]).mean(axis=0),
        rtol=1e-5,
    )
    # An ensemble's members are kept without their poolers.
    moduli = modulus(encoders[0], SENTENCES)
    assert moduli.pooler is None and moduli.note == "there is no pooler."

    mixed = SentenceTransformer(
        modules=[MultiTokenizerEnsemble([twin(tower_folders), single(roberta_folder)])]
    )
    encoders = encoders_of(mixed)
    assert [encoder.label for encoder in encoders] == [
        "member 1, tower I",
        "member 1, tower II",
        "member 2",
    ]
    np.testing.assert_allclose(
        cls_energy_by_layer(encoders[2], SENTENCES).mean,
        energies(roberta_folder).mean(axis=0),
        rtol=1e-5,
    )


def test_a_pooler_that_was_never_trained_is_told(tower_folders):
    model = single(tower_folders[0])
    torch.nn.init.zeros_(model[0].model.pooler.dense.bias)
    moduli = modulus(encoders_of(model)[0], SENTENCES)
    assert moduli.note.startswith("the pooler was never trained (its bias is zero)")
    assert len(moduli.pooler) == len(SENTENCES)


def test_a_model_without_such_an_encoder_is_told():
    model = SentenceTransformer(
        modules=[StaticEmbedding(make_tokenizer().backend_tokenizer, embedding_dim=8)]
    )
    with pytest.raises(
        UserError,
        match="needs a BERT or RoBERTa encoder; the model's first module is StaticEmbedding",
    ):
        encoders_of(model)


def test_looking_leaves_the_model_as_it_is(tower_folders):
    model = twin(tower_folders).train()
    before, embeddings = weights_sha256(model), model.encode(SENTENCES)
    model.train()
    for encoder in encoders_of(model):
        attention_sink(encoder, SENTENCES[0])
        cls_energy_by_layer(encoder, SENTENCES)
        modulus(encoder, SENTENCES)
    assert all(module.training for module in model.modules())
    assert model[0].model.config._attn_implementation == "sdpa"
    assert {tower.config._attn_implementation for tower in model[0].model.towers} == {"sdpa"}
    assert not any(module._forward_hooks for module in model.modules())
    assert weights_sha256(model) == before and np.array_equal(model.encode(SENTENCES), embeddings)
