"""The cross stream's CLS row against the full computation over all rows, written out with an
explicit softmax.
"""

import itertools
import math

import pytest
import torch
from conftest import checkpoint_activations, make_config, make_encoder, make_tokenizer, save_encoder
from transformers import AutoModel

from st_jtcse.errors import UserError
from st_jtcse.modules.joining import twin_of
from st_jtcse.towers import TwinEncoderConfig
from st_jtcse.towers.modeling_tower_layers import BertLayers, EveryRow
from st_jtcse.towers.modeling_twin_encoder import CROSS_RESIDUALS

EXACT = dict(rtol=1e-10, atol=1e-10)


def make_batch(family="bert"):
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 40, (5, 9), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, 4:] = 0
    mask[3, 2:] = 0
    pad = make_config(family).pad_token_id
    return ids.masked_fill(mask == 0, pad), mask


def make_twin(family="bert", every=2, residual="stream"):
    towers = [make_encoder(seed, family).double() for seed in (1, 2)]
    return twin_of(*towers, every, residual).eval(), towers


def heads(states, attention):
    return states.unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)


def attend(layer, hidden, mask):
    """Attention matrix (B, heads, T, T) and values, by explicit softmax over all rows."""
    attention = layer.attention.self
    query, key, value = (
        heads(f(hidden), attention) for f in (attention.query, attention.key, attention.value)
    )
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    return scores.masked_fill(mask[:, None, None, :] == 0, -torch.inf).softmax(-1), value


def complete(layer, context, residual):
    attended = layer.attention.output(context, residual)
    return layer.output(layer.intermediate(attended), attended)


def full_cross_streams(towers, ids, mask, every, residual):
    """JTCSE Eq. 7 to 10 for every row: both normal streams and both cross streams, (B, T, H) each.

    `layers`: at an ordinary layer the cross stream attends to itself, with queries, keys and values
    of its own rows.
    """
    hidden = [tower.embeddings(input_ids=ids) for tower in towers]
    cross = [None, None]
    for index in range(len(towers[0].encoder.layer)):
        layers = [tower.encoder.layer[index] for tower in towers]
        both = [attend(layer, state, mask) for layer, state in zip(layers, hidden)]
        merge = [(weights @ value).transpose(1, 2).flatten(2) for weights, value in both]
        if (index + 1) % every == 0:
            for own, partner in ((0, 1), (1, 0)):
                crossed = (both[own][0] @ both[partner][1]).transpose(1, 2).flatten(2)
                start = hidden[own] if residual == "local" or cross[own] is None else cross[own]
                cross[own] = complete(layers[own], crossed, start)
        elif residual == "layers" and cross[0] is not None:
            for own in (0, 1):
                weights, value = attend(layers[own], cross[own], mask)
                cross[own] = complete(
                    layers[own], (weights @ value).transpose(1, 2).flatten(2), cross[own]
                )
        hidden = [complete(*each) for each in zip(layers, merge, hidden)]
        if index == 0:
            firsts = hidden, hidden if cross[0] is None else list(cross)
    return hidden, cross, firsts


def pool(last, first, towers, mask, pooling):
    """The pooled state of each tower's rows, (B, H) each."""
    if pooling == "pooler":
        return [tower.pooler(rows) for tower, rows in zip(towers, last)]
    if pooling in ("cls", "none"):
        return [rows[:, 0] for rows in last]
    rows = last if pooling == "mean" else [(a + b) / 2 for a, b in zip(first, last)]
    return [
        torch.stack([each[seen.bool()].mean(0) for each, seen in zip(state, mask)])
        for state in rows
    ]


@pytest.mark.parametrize("family", ["bert", "roberta"])
# Only k = 2 leaves a layer between two cross layers of four: elsewhere `layers` is `stream`.
@pytest.mark.parametrize(
    ("residual", "every"), [*itertools.product(("stream", "local"), (1, 2, 4)), ("layers", 2)]
)
@pytest.mark.parametrize("pooling", ["cls", "none", "pooler", "mean", "first_last"])
def test_cls_row_equals_the_full_computation_forward_and_backward(family, residual, every, pooling):
    twin, towers = make_twin(family, every, residual)
    ids, mask = make_batch(family)
    output = twin(ids, mask, tower_outputs=True, pooling=pooling)
    hidden, cross, firsts = full_cross_streams(towers, ids, mask, every, residual)
    expected_cls = torch.stack(pool(hidden, firsts[0], towers, mask, pooling), dim=1)
    expected_cross = torch.stack(pool(cross, firsts[1], towers, mask, pooling), dim=1)
    if pooling != "none":
        torch.testing.assert_close(output.last_hidden_state[:, 0], expected_cls.sum(1), **EXACT)
    torch.testing.assert_close(output.tower_embedding, expected_cls, **EXACT)
    torch.testing.assert_close(output.cross_embedding, expected_cross, **EXACT)

    probe = torch.randn(5, 2, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    (output.cross_embedding * probe + output.tower_embedding * probe.flip(0)).sum().backward()
    (expected_cross * probe + expected_cls * probe.flip(0)).sum().backward()
    for own, reference in zip(twin.towers, towers):
        for name, parameter in reference.named_parameters():
            if parameter.grad is not None:
                torch.testing.assert_close(
                    own.get_parameter(name).grad, parameter.grad, msg=name, **EXACT
                )


def test_residual_readings_differ_only_with_several_cross_layers():
    ids, mask = make_batch()
    outputs = {
        (residual, every): make_twin("bert", every, residual)[0](
            ids, mask, tower_outputs=True
        ).cross_embedding
        for residual in CROSS_RESIDUALS
        for every in (1, 2, 4)
    }
    # `local` forgets every cross layer but the last one, so k has no effect; `stream` does not.
    torch.testing.assert_close(outputs["local", 1], outputs["local", 4], **EXACT)
    torch.testing.assert_close(outputs["stream", 4], outputs["local", 4], **EXACT)
    assert (outputs["stream", 1] - outputs["stream", 2]).abs().max() > 1e-3
    # `layers` differs from `stream` where a layer lies between two cross layers.
    torch.testing.assert_close(outputs["layers", 1], outputs["stream", 1], **EXACT)
    torch.testing.assert_close(outputs["layers", 4], outputs["local", 4], **EXACT)
    assert (outputs["layers", 2] - outputs["stream", 2]).abs().max() > 1e-3


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_normal_streams_are_the_plain_encoders_with_and_without_the_cross_stream(family):
    twin, towers = make_twin(family)
    ids, mask = make_batch(family)
    plain = [tower(ids, attention_mask=mask).last_hidden_state for tower in towers]
    with_cross = twin(ids, mask, tower_outputs=True, pooling="none")
    without = twin(ids, mask, pooling="none")
    rows = mask.bool()
    torch.testing.assert_close(
        without.last_hidden_state[rows], (plain[0] + plain[1])[rows], **EXACT
    )
    torch.testing.assert_close(
        with_cross.last_hidden_state[rows], (plain[0] + plain[1])[rows], **EXACT
    )
    torch.testing.assert_close(
        with_cross.tower_embedding, torch.stack([p[:, 0] for p in plain], 1), **EXACT
    )
    torch.testing.assert_close(
        twin(ids, mask).last_hidden_state, without.last_hidden_state[:, :1], **EXACT
    )


def test_one_dropout_draw_serves_the_normal_and_the_cross_row():
    tower = make_encoder(1, attention_probs_dropout_prob=0.5).double().train()
    layer = tower.encoder.layer[0]
    hidden = torch.randn(3, 7, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ids = torch.full((3, 7), 5)
    torch.manual_seed(11)
    rows = EveryRow(BertLayers(tower, ids, torch.ones_like(ids)), layer, hidden)
    assert (rows.weights == 0).any(), "no weight was dropped: the test would prove nothing"
    # Values of one are the identity's columns: the context then shows the weights that were
    # applied.
    ones = torch.ones_like(rows.value)
    torch.testing.assert_close(rows.context(ones), rows.context(ones.clone()), rtol=0, atol=0)
    all_rows, first = rows.contexts(rows.value)
    torch.testing.assert_close(all_rows[:, :1], first, rtol=0, atol=0)


def test_identical_towers_have_identical_normal_and_cross_rows_under_attention_dropout():
    # With SA_I, V_I = V_II and the same residual, only a second dropout draw could make the cross
    # row differ.
    tower = make_encoder(1, attention_probs_dropout_prob=0.5, hidden_dropout_prob=0.0)
    twin = twin_of(tower, tower, 4, "local").train()
    ids, mask = make_batch()
    torch.manual_seed(0)
    output = twin(ids, mask, tower_outputs=True)
    first = output.tower_embedding[:, 0] - output.tower_embedding[:, 1]
    assert first.abs().max() > 1e-3, "the towers' draws must differ"
    hidden = {}
    last = twin.towers[0].encoder.layer[3].attention.output
    handle = last.register_forward_hook(
        lambda module, args, result: hidden.setdefault(len(hidden), args[0])
    )
    twin.towers[1].load_state_dict(twin.towers[0].state_dict())
    for layer in twin.towers[0].encoder.layer[:3]:
        layer.eval()
    for layer in twin.towers[1].encoder.layer:
        layer.eval()
    twin(ids, mask, tower_outputs=True)
    handle.remove()
    # Only the last layer of tower I drops: its normal and cross contexts see equal values and must
    # be equal.
    torch.testing.assert_close(hidden[0], hidden[1], rtol=1e-5, atol=1e-6)
    assert len(hidden) == 2


@pytest.mark.parametrize("residual", ["stream", "layers"])
def test_gradient_checkpointing_gives_the_same_gradients(residual):
    ids, mask = make_batch()
    gradients = []
    for checkpointing in (False, True):
        twin, _ = make_twin(residual=residual)
        twin.train()
        if checkpointing:
            checkpoint_activations(twin)
        torch.manual_seed(4)
        output = twin(ids, mask, tower_outputs=True)
        (output.cross_embedding.square().sum() + output.tower_embedding.square().sum()).backward()
        gradients.append(
            {name: p.grad for name, p in twin.named_parameters() if p.grad is not None}
        )
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_implementations_agree(tmp_path, implementation):
    twin, towers = make_twin()
    twin.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(
        tmp_path, attn_implementation=implementation, dtype=torch.float64
    )
    assert loaded.towers[0].config._attn_implementation == implementation
    ids, mask = make_batch()
    expected = sum(tower(ids, attention_mask=mask).last_hidden_state[:, :1] for tower in towers)
    torch.testing.assert_close(loaded.eval()(ids, mask).last_hidden_state, expected, **EXACT)


def test_dtype_is_kept_and_chosen(tmp_path):
    make_twin()[0].to(dtype=torch.bfloat16).save_pretrained(tmp_path)
    assert {p.dtype for p in AutoModel.from_pretrained(tmp_path).parameters()} == {torch.bfloat16}
    assert {p.dtype for p in AutoModel.from_pretrained(tmp_path, dtype="float16").parameters()} == {
        torch.float16
    }


def test_compiles_into_one_graph():
    twin, _ = make_twin()
    ids, mask = make_batch()
    expected = twin(ids, mask, tower_outputs=True)
    graphs = []

    def count(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(twin, dynamic=True, fullgraph=True, backend=count)
    found = compiled(ids, mask, tower_outputs=True)
    torch.testing.assert_close(found.cross_embedding, expected.cross_embedding, **EXACT)
    torch.testing.assert_close(found.last_hidden_state, expected.last_hidden_state, **EXACT)
    compiled(ids[:3, :7].contiguous(), mask[:3, :7].contiguous(), tower_outputs=True)
    assert len(graphs) == 1


def test_towers_round_trip_with_their_poolers(tmp_path):
    twin, towers = make_twin()
    for index, tower in enumerate(twin.to_towers()):
        tower.save_pretrained(tmp_path / str(index))
        loaded = AutoModel.from_pretrained(tmp_path / str(index), dtype=torch.float64)
        assert type(loaded) is type(towers[index])
        for name, value in towers[index].state_dict().items():
            torch.testing.assert_close(loaded.state_dict()[name], value, rtol=0, atol=0, msg=name)


def test_towers_are_copied_not_shared():
    tower = make_encoder(1)
    twin = twin_of(tower, tower)
    with torch.no_grad():
        twin.towers[0].pooler.dense.weight.zero_()
    assert twin.towers[1].pooler.dense.weight.abs().sum() > 0
    assert tower.pooler.dense.weight.abs().sum() > 0


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        (dict(num_hidden_layers=2), "num_hidden_layers: 4 in the first, 2 in the second"),
        (dict(hidden_size=16), "hidden_size: 32 in the first, 16 in the second"),
        (dict(vocab_size=99), "vocab_size: 44 in the first, 99 in the second"),
        (
            dict(family="roberta", pad_token_id=0),
            "model_type: 'bert' in the first, 'roberta' in the second",
        ),
    ],
)
def test_the_first_difference_of_the_towers_is_named(changes, difference):
    with pytest.raises(UserError, match="The towers differ in " + difference):
        twin_of(make_encoder(1), make_encoder(2, **changes))


def test_tokenizers_of_tower_folders_must_agree(tmp_path):
    first, second = save_encoder(tmp_path / "1", 1), save_encoder(tmp_path / "2", 2)
    tokenizer = make_tokenizer()
    vocabulary = tokenizer.get_vocab()
    words = sorted(vocabulary, key=vocabulary.get)[5:]
    make_tokenizer(words[1:] + words[:1]).save_pretrained(second)
    with pytest.raises(
        UserError, match=r"The tokenizers of .* differ in the id of .*; a twin needs one tokenizer"
    ):
        twin_of(first, second)


@pytest.mark.parametrize("every", [3, 8])
def test_a_period_that_does_not_divide_the_depth_is_refused(every):
    with pytest.raises(
        ValueError, match=f"must divide the towers' 4 layers, found {every}; use one of 1, 2, 4"
    ):
        TwinEncoderConfig(make_config(), cross_attention_every=every)


def test_a_newer_format_is_refused_with_the_way_out():
    with pytest.raises(
        ValueError, match=r"format 3, but this version reads up to format 2; upgrade st-jtcse"
    ):
        TwinEncoderConfig(make_config(), format_version=3)


def test_towers_that_cannot_cross_or_give_rows_are_refused():
    with pytest.raises(ValueError, match=r"'albert' have no cross-attention, .* do without it"):
        TwinEncoderConfig({"model_type": "albert"})
    with pytest.raises(
        ValueError,
        match="A tower must be an encoder or a decoder alone, found 'bart', which is both",
    ):
        TwinEncoderConfig({"model_type": "bart"}, None)
    with pytest.raises(
        ValueError, match="A tower must be of a type that transformers knows itself, found 'mine'"
    ):
        TwinEncoderConfig({"model_type": "mine"}, None)
    with pytest.raises(ValueError, match=r"pooling must be one of cls, mean, .*, found 'max'"):
        TwinEncoderConfig(make_config(), pooling="max")


def test_config_holds_what_readers_look_for_and_no_local_path(tmp_path):
    folders = save_encoder(tmp_path / "1", 1), save_encoder(tmp_path / "2", 2)
    twin_of(*folders).save_pretrained(tmp_path / "twin")
    text = (tmp_path / "twin" / "config.json").read_text()
    assert str(tmp_path) not in text
    config = TwinEncoderConfig.from_pretrained(tmp_path / "twin")
    assert (
        config.hidden_size,
        config.num_hidden_layers,
        config.vocab_size,
        config.pad_token_id,
    ) == (32, 4, 44, 0)
    assert config.auto_map == {
        "AutoConfig": "modeling_twin_encoder.TwinEncoderConfig",
        "AutoModel": "modeling_twin_encoder.TwinEncoderModel",
    }


def test_a_missing_pooler_is_told(tmp_path, caplog):
    encoder = make_encoder(1)
    state = {
        name: value
        for name, value in encoder.state_dict().items()
        if not name.startswith("pooler.")
    }
    encoder.save_pretrained(tmp_path / "1", state_dict=state)
    make_tokenizer().save_pretrained(tmp_path / "1")
    import transformers

    # It is told once a process, and another test may have done so.
    transformers.utils.logging.warning_once.cache_clear()
    transformers.logging.enable_propagation()
    with caplog.at_level("WARNING"):
        twin_of(tmp_path / "1", save_encoder(tmp_path / "2", 2))
    transformers.logging.disable_propagation()
    assert "the modulus term starts from a random pooler" in caplog.text
