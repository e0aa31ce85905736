"""The ensemble against the plain encoders it is made of."""

import pytest
import torch
from conftest import make_config, make_encoder, make_tokenizer, save_encoder
from test_twin_encoder import make_batch
from transformers import AutoModel

from st_jtcse.errors import UserError
from st_jtcse.modules.joining import ensemble_encoder_of, twin_of
from st_jtcse.towers import EnsembleEncoderConfig

EXACT = dict(rtol=1e-10, atol=1e-10)
# Everything that members may differ in.
SHAPES = (
    {},
    dict(num_hidden_layers=2),
    dict(num_attention_heads=2, intermediate_size=20, max_position_embeddings=33),
)


def make_members(family="bert", dtype=torch.float64):
    return [
        make_encoder(seed, family, **shape).to(dtype) for seed, shape in enumerate(SHAPES, start=1)
    ]


def weighted_sum(members, weights, ids, mask):
    with torch.no_grad():
        states = [member(ids, attention_mask=mask).last_hidden_state for member in members]
    return sum(weight * state for weight, state in zip(weights, states))


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("weights", [[0.3, 0.3, 0.7], None])
def test_the_embedding_is_the_weighted_sum_of_the_plain_encoders(family, weights):
    members = make_members(family)
    ids, mask = make_batch(family)
    ensemble = ensemble_encoder_of(members, weights).eval()
    expected = weighted_sum(members, weights or [1.0, 1.0, 1.0], ids, mask)
    torch.testing.assert_close(ensemble(ids, mask).last_hidden_state, expected[:, :1], **EXACT)
    every_row = ensemble(ids, mask, pooling="none").last_hidden_state
    torch.testing.assert_close(every_row[mask.bool()], expected[mask.bool()], **EXACT)
    assert len(ensemble(ids, mask, return_dict=False)) == 1


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_saved_and_loaded_it_is_the_same_sum_in_single_precision(family, tmp_path):
    members = make_members(family, torch.float32)
    weights = [0.3, 0.3, 0.7]
    ensemble_encoder_of(members, weights).save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert loaded.config.weights == weights
    ids, mask = make_batch(family)
    # Bit by bit: the layers are the plain encoders' own, run on the same batch.
    expected = weighted_sum(members, weights, ids, mask)[:, :1]
    assert torch.equal(loaded(ids, mask).last_hidden_state, expected)
    expected = weighted_sum(members, weights, ids[1:2], torch.ones_like(ids[1:2]))[:, :1]
    assert torch.equal(loaded(ids[1:2]).last_hidden_state, expected)


def test_a_twin_counts_as_its_towers_and_an_ensemble_as_its_members(tmp_path):
    towers = [make_encoder(seed) for seed in (1, 2)]
    other = make_encoder(3)
    folder = tmp_path / "twin"
    twin_of(*towers).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    fused = ensemble_encoder_of([folder, other], [0.3, 0.7])
    assert fused.config.weights == [0.3, 0.3, 0.7]
    nested = ensemble_encoder_of([fused, other], [0.5, 2.0])
    assert nested.config.weights == [0.15, 0.15, 0.35, 2.0]
    ids, mask = make_batch()
    expected = weighted_sum([*towers, other, other], nested.config.weights, ids, mask)[:, :1]
    assert (nested.eval()(ids, mask).last_hidden_state - expected).abs().max() < 1e-6


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_implementations_agree(tmp_path, implementation):
    members = make_members()
    ensemble_encoder_of(members).save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(
        tmp_path, attn_implementation=implementation, dtype=torch.float64
    )
    assert {member.config._attn_implementation for member in loaded.members} == {implementation}
    ids, mask = make_batch()
    expected = weighted_sum(members, [1.0, 1.0, 1.0], ids, mask)[:, :1]
    torch.testing.assert_close(loaded(ids, mask).last_hidden_state, expected, **EXACT)


def test_dtype_is_kept_and_chosen(tmp_path):
    ensemble_encoder_of(make_members(dtype=torch.bfloat16)).save_pretrained(tmp_path)
    assert {p.dtype for p in AutoModel.from_pretrained(tmp_path).parameters()} == {torch.bfloat16}
    assert {p.dtype for p in AutoModel.from_pretrained(tmp_path, dtype="float16").parameters()} == {
        torch.float16
    }


def test_compiles_into_one_graph():
    ensemble = ensemble_encoder_of(make_members()).eval()
    ids, mask = make_batch()
    expected = ensemble(ids, mask).last_hidden_state
    graphs = []

    def count(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(ensemble, dynamic=True, fullgraph=True, backend=count)
    torch.testing.assert_close(compiled(ids, mask).last_hidden_state, expected, **EXACT)
    compiled(ids[:3, :7].contiguous(), mask[:3, :7].contiguous())
    assert len(graphs) == 1


def test_members_are_copied_without_their_poolers():
    member = make_encoder(1)
    ensemble = ensemble_encoder_of([member, member])
    with torch.no_grad():
        ensemble.members[0].embeddings.word_embeddings.weight.zero_()
    assert ensemble.members[1].embeddings.word_embeddings.weight.abs().sum() > 0
    assert member.embeddings.word_embeddings.weight.abs().sum() > 0
    assert not any("pooler" in name for name in ensemble.state_dict())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            dict(hidden_size=16),
            "differ in hidden_size: 32 in the first, 16 in no. 3; a sum needs one size",
        ),
        (
            dict(vocab_size=99),
            "differ in vocab_size: 44 in the first, 99 in no. 3; .* summed by "
            "MultiTokenizerEnsemble",
        ),
        (
            dict(pad_token_id=1),
            "differ in pad_token_id: 0 in the first, 1 in no. 3; .* MultiTokenizerEnsemble",
        ),
    ],
)
def test_the_first_difference_of_the_members_is_named_with_the_way_out(changes, message):
    twin = twin_of(make_encoder(1), make_encoder(2))
    with pytest.raises(UserError, match=message):
        ensemble_encoder_of([twin, make_encoder(1), make_encoder(3, **changes)])


def test_tokenizers_of_folders_must_agree(tmp_path):
    first, second = save_encoder(tmp_path / "1", 1), save_encoder(tmp_path / "2", 2)
    vocabulary = make_tokenizer().get_vocab()
    words = sorted(vocabulary, key=vocabulary.get)[5:]
    make_tokenizer(words[1:] + words[:1]).save_pretrained(second)
    with pytest.raises(UserError, match=r"differ in the id of .* summed by MultiTokenizerEnsemble"):
        ensemble_encoder_of([first, second])
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    tokenizer.save_pretrained(second)
    with pytest.raises(
        UserError, match=r"differ in how they split or mark text .* MultiTokenizerEnsemble"
    ):
        ensemble_encoder_of([first, second])


@pytest.mark.parametrize(
    ("count", "weights", "message"),
    [
        (0, None, "at least one member, found none"),
        (0, [], "at least one member, found none"),
        (2, [1.0], "one weight per member, found 1 for 2"),
        (2, [1.0, 2.0, 3.0], "one weight per member, found 3 for 2"),
    ],
)
def test_no_members_and_other_numbers_of_weights_are_refused(count, weights, message):
    with pytest.raises(UserError, match=message):
        ensemble_encoder_of([make_encoder(1)] * count, weights)
    with pytest.raises(ValueError, match=message):
        EnsembleEncoderConfig([make_config()] * count, weights)


def test_a_member_that_gives_no_rows_is_refused():
    from transformers import T5Config, T5Model

    config = T5Config(vocab_size=44, d_model=32, d_kv=8, d_ff=16, num_layers=1, num_heads=4)
    with pytest.raises(
        UserError, match="A member must be an encoder or a decoder alone, found 't5', which is both"
    ):
        ensemble_encoder_of([make_encoder(1), T5Model(config)])
    with pytest.raises(
        ValueError, match="members are without poolers, so that it cannot be pooled by 'pooler'"
    ):
        EnsembleEncoderConfig([make_config()], pooling="pooler")


def test_a_folder_that_lacks_weights_is_refused(tmp_path):
    encoder = make_encoder(1)
    lost = "encoder.layer.3.output.dense.bias"
    state = {name: value for name, value in encoder.state_dict().items() if name != lost}
    encoder.save_pretrained(tmp_path, state_dict=state)
    make_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=f"lacks the weight '{lost}'"):
        ensemble_encoder_of([tmp_path])


def test_a_newer_format_is_refused_with_the_way_out():
    with pytest.raises(
        ValueError, match=r"format 3, but this version reads up to format 2; upgrade st-jtcse"
    ):
        EnsembleEncoderConfig([make_config()], format_version=3)


def test_config_holds_what_readers_look_for_and_no_local_path(tmp_path):
    folders = [
        save_encoder(tmp_path / str(seed), seed, **shape) for seed, shape in enumerate(SHAPES)
    ]
    ensemble_encoder_of(folders).save_pretrained(tmp_path / "ensemble")
    assert str(tmp_path) not in (tmp_path / "ensemble" / "config.json").read_text()
    config = EnsembleEncoderConfig.from_pretrained(tmp_path / "ensemble")
    assert (
        config.hidden_size,
        config.num_hidden_layers,
        config.vocab_size,
        config.pad_token_id,
    ) == (32, 4, 44, 0)
    assert config.max_position_embeddings == 33, "the shortest member's"
    assert [member.num_hidden_layers for member in config.members] == [4, 2, 4]
    assert config.auto_map == {
        "AutoConfig": "modeling_ensemble_encoder.EnsembleEncoderConfig",
        "AutoModel": "modeling_ensemble_encoder.EnsembleEncoderModel",
    }
