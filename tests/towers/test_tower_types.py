"""Twins of every type of tower against the plain encoders, and against what their own attention
says.
"""

import numpy as np
import pytest
import torch
from conftest import checkpoint_activations, make_sentences, make_tokenizer, make_tower
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from test_twin_encoder import make_batch
from transformers import DataCollatorWithFlattening
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

from st_jtcse.errors import PoolerNeeded, UserError
from st_jtcse.losses import JTCSELoss
from st_jtcse.modules import EnsembleEncoder, PoolerModulusHead, TwinCrossAttentionEncoder
from st_jtcse.modules.joining import transformer_of, twin_of
from st_jtcse.modules.loading import pooling_of
from st_jtcse.towers.modeling_twin_encoder import CROSS_RESIDUALS, CROSSING_TYPES

SENTENCES = make_sentences(6)
BERT = ("attention.self.value", "attention.output")
# Where a layer makes its values, and where it takes in what its attention made of them.
PLACES = {
    "mpnet": ("attention.attn.v", "attention.attn.o"),
    "distilbert": ("attention.v_lin", "attention.out_lin"),
    "modernbert": ("attn.Wqkv", "attn.Wo"),
}
ALONE = {"albert": "mean", "t5": "mean", "qwen3": "lasttoken"}
KINDS = [*CROSSING_TYPES, *ALONE]


def layers_of(tower):
    found = getattr(tower, "encoder", None) or getattr(tower, "transformer", None) or tower
    return found.layers if hasattr(found, "layers") else found.layer


def pooled(tower, ids, mask, pooling):
    """A plain tower's pooled state, written out."""
    output = tower(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    rows = output.last_hidden_state
    if pooling == "first_last":
        rows = (rows + output.hidden_states[1]) / 2
    chosen = {"cls": lambda row, seen: row[seen][0], "lasttoken": lambda row, seen: row[seen][-1]}
    pool = chosen.get(pooling, lambda row, seen: row[seen].mean(0))
    return torch.stack([pool(row, seen.bool()) for row, seen in zip(rows, mask)])


def padded_on(side):
    ids, mask = make_batch()
    return (ids.flip(1), mask.flip(1)) if side == "left" else (ids, mask)


@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last", "lasttoken"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_embedding_is_the_sum_of_the_towers_own(kind, pooling):
    towers = [make_tower(kind, seed) for seed in (1, 2)]
    twin = twin_of(*towers, 2 if kind in CROSSING_TYPES else None, pooling=pooling).eval()
    for side in ("right", "left"):
        ids, mask = padded_on(side)
        expected = sum(pooled(tower, ids, mask, pooling) for tower in towers)
        with torch.no_grad():
            found = twin(ids, mask).last_hidden_state
            with_outputs = twin(ids, mask, tower_outputs=True)
        scale = expected.abs().max().item()
        torch.testing.assert_close(found[:, 0], expected, rtol=0, atol=1e-6 * scale)
        torch.testing.assert_close(
            with_outputs.tower_embedding.sum(1), expected, rtol=0, atol=1e-6 * scale
        )
        assert (with_outputs.cross_embedding is None) == (kind in ALONE)


@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last", "lasttoken"])
def test_prompts_that_do_not_count_are_left_out_as_sentence_transformers_leaves_them_out(pooling):
    towers = [make_tower("bert", seed) for seed in (1, 2)]
    form = {"pooling": pooling, "include_prompt": False, "tokenizer": make_tokenizer()}
    twin = TwinCrossAttentionEncoder.from_towers(*towers, **form)
    joined = SentenceTransformer(modules=[twin, Pooling(32, "cls")], device="cpu")
    expected = 0
    for tower in towers:
        alone = transformer_of(Transformer, tower, make_tokenizer())
        modules = pooling_of(alone, pooling)
        modules[-1].include_prompt = False
        expected += SentenceTransformer(modules=[alone, *modules], device="cpu").encode(
            SENTENCES, prompt="red dog "
        )
    found = joined.encode(SENTENCES, prompt="red dog ")
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    assert np.abs(found - joined.encode(SENTENCES)).max() > 1e-3


def own_attention(tower, ids, mask):
    """What the encoder's own forward pass shows: hidden states, attention, values, and how its
    layers are called.
    """
    value_place = PLACES.get(tower.config.model_type, BERT)[0]
    values, calls, handles = [], [], []
    for layer in layers_of(tower):
        values_of = layer.get_submodule(value_place)
        handles.append(
            values_of.register_forward_hook(lambda module, args, result: values.append(result))
        )
        keep = lambda module, args, kwargs: calls.append((args, kwargs))  # noqa: E731
        handles.append(layer.register_forward_pre_hook(keep, with_kwargs=True))
    is_modern = tower.config.model_type == "modernbert"
    output = tower(input_ids=ids, attention_mask=mask, output_attentions=not is_modern)
    for handle in handles:
        handle.remove()
    attentions = windowed_attentions(tower, values, mask) if is_modern else output.attentions
    return attentions, [value[..., -32:] for value in values], calls


def windowed_attentions(tower, projections, mask):
    """ModernBERT's attention by explicit softmax: its own eager form rounds to float32."""
    places = torch.arange(mask.shape[1])
    attentions = []
    for kind, projected in zip(tower.config.layer_types, projections):
        query, key, _ = projected.unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        query, key = apply_rotary_pos_emb(query, key, *tower.rotary_emb(query, places[None], kind))
        seen = mask[:, None, None, :].bool().expand(-1, -1, len(places), -1)
        if kind == "sliding_attention":
            near = (places[:, None] - places).abs() <= tower.config.local_attention // 2
            seen = (seen & near) | torch.eye(len(places), dtype=torch.bool)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        attentions.append(scores.masked_fill(~seen, -torch.inf).softmax(-1))
    return attentions


def ordinary(tower, index, rows, calls):
    """The encoder's own layer on other rows than its own."""
    args, kwargs = calls[index]
    result = layers_of(tower)[index](rows, *args[1:], **kwargs)
    return result[0] if isinstance(result, tuple) else result


def reference_cross_streams(towers, ids, mask, every, residual):
    """JTCSE Eq. 7 to 10 of every row, completed by the encoders' own layers."""
    attentions, values, calls = zip(*(own_attention(tower, ids, mask) for tower in towers))
    cross = [None, None]
    for index in range(len(values[0])):
        if (index + 1) % every:
            if residual == "layers" and cross[0] is not None:
                cross = [
                    ordinary(tower, index, rows, call)
                    for tower, rows, call in zip(towers, cross, calls)
                ]
            continue
        for own, partner in ((0, 1), (1, 0)):
            value = values[partner][index].unflatten(-1, (4, -1)).transpose(1, 2)
            context = (attentions[own][index] @ value).transpose(1, 2).flatten(2)
            args, kwargs = calls[own][index]
            start = args[0] if residual == "local" or cross[own] is None else cross[own]
            layer = layers_of(towers[own])[index]
            place = layer.get_submodule(PLACES.get(towers[own].config.model_type, BERT)[1])
            handle = place.register_forward_pre_hook(
                lambda module, given, context=context: (context, *given[1:])
            )
            result = layer(start, *args[1:], **kwargs)
            cross[own] = result[0] if isinstance(result, tuple) else result
            handle.remove()
    end = [getattr(tower, "final_norm", lambda rows: rows) for tower in towers]
    return [norm(rows) for norm, rows in zip(end, cross)]


@pytest.mark.parametrize(
    ("residual", "pooling", "side"),
    [
        *(
            (residual, pooling, "right")
            for residual in CROSS_RESIDUALS
            for pooling in ("cls", "mean")
        ),
        ("stream", "cls", "left"),
        ("stream", "mean", "left"),
    ],
)
@pytest.mark.parametrize("kind", CROSSING_TYPES)
def test_the_cross_stream_is_the_explicit_softmax_over_all_rows(kind, residual, pooling, side):
    eager = {} if kind == "modernbert" else {"attn_implementation": "eager"}
    towers = [make_tower(kind, seed, **eager).double() for seed in (1, 2)]
    twin = twin_of(*towers, 2, residual, pooling=pooling).eval()
    ids, mask = padded_on(side)
    rows = reference_cross_streams(towers, ids, mask, 2, residual)
    seen = mask.unsqueeze(-1).double()
    first = (torch.arange(len(ids)), mask.argmax(1))
    expected = [
        row[first] if pooling == "cls" else (row * seen).sum(1) / seen.sum(1) for row in rows
    ]
    found = twin(ids, mask, tower_outputs=True).cross_embedding
    torch.testing.assert_close(found, torch.stack(expected, 1), rtol=1e-9, atol=1e-9)

    probe = torch.randn(2, 5, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    (torch.stack(expected) * probe).sum().backward()
    (found * probe.transpose(0, 1)).sum().backward()
    # ModernBERT turns its queries and keys in float32, which rounds their gradients.
    near = dict(rtol=1e-6, atol=1e-6) if kind == "modernbert" else dict(rtol=1e-8, atol=1e-8)
    for own, reference in zip(twin.towers, towers):
        for name, parameter in reference.named_parameters():
            if parameter.grad is not None:
                torch.testing.assert_close(
                    own.get_parameter(name).grad, parameter.grad, msg=name, **near
                )


def make_model(kind, pooling="mean", head=True, **changes):
    towers = [make_tower(kind, seed, **changes) for seed in (1, 2)]
    crossing = 2 if kind in CROSSING_TYPES else None
    encoder = TwinCrossAttentionEncoder.from_towers(
        *towers, crossing, pooling=pooling, tokenizer=make_tokenizer()
    )
    modules = [encoder, *([PoolerModulusHead()] if head else []), Pooling(32, "cls")]
    return SentenceTransformer(modules=modules, device="cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_two_steps_train_every_parameter_that_embeds_and_checkpointing_changes_nothing(kind):
    gradients = []
    for checkpointing in (False, True):
        model = make_model(kind, pooling=ALONE.get(kind, "mean")).train()
        if checkpointing:
            checkpoint_activations(model[0].model)
        loss = JTCSELoss(model, cross_weight=float(kind in CROSSING_TYPES))
        loss.length_chunks = 1
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        torch.manual_seed(4)
        for _ in range(2):
            optimizer.zero_grad()
            terms = loss([model.preprocess(SENTENCES)])
            sum(terms.values()).backward()
            optimizer.step()
        gradients.append(
            {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        )
    assert any("pooler" in name for name in gradients[0]), "the modulus term reaches the poolers"
    # The decoder reads what it attends to; everything of every layer takes part.
    assert all(gradient.isfinite().all() for gradient in gradients[0].values())
    assert sum("layer" in name for name in gradients[0]) >= 2 * 4
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-6, atol=1e-7, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_is_near_single(kind):
    model = make_model(kind, pooling=ALONE.get(kind, "mean"), head=False).eval()
    ids, mask = make_batch()
    with torch.no_grad():
        expected = model[0].model(ids, mask, tower_outputs=True)
        found = model[0].model.to(dtype=torch.bfloat16)(ids, mask, tower_outputs=True)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == torch.bfloat16
        assert (found[name].float() - value).abs().max() < 0.1 * value.abs().max(), name


def flat_features(model, sentences):
    """What Sentence-Transformers makes of sentences where flash attention is at hand."""
    ids = [{"input_ids": row} for row in model.tokenizer(sentences)["input_ids"]]
    collate = DataCollatorWithFlattening(return_seq_idx=True, return_flash_attn_kwargs=True)
    features = dict(collate(ids))
    features.pop("labels")
    return features


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [
        ("bert", "cls"),
        ("roberta", "mean"),
        ("roberta", "none"),
        ("modernbert", "mean"),
        ("qwen3", "lasttoken"),
    ],
)
def test_flat_inputs_give_the_padded_embeddings_and_gradients(kind, pooling):
    results = []
    for flat in (False, True):
        model = make_model(kind, pooling, head=pooling != "none").eval()
        model[-1].pooling_mode = "mean" if pooling == "none" else "cls"
        features = flat_features(model, SENTENCES) if flat else model.preprocess(SENTENCES)
        embedded = model(dict(features))["sentence_embedding"]
        out = model(dict(features) | {"tower_outputs": True})
        kept = [
            out[key]
            for key in ("sentence_embedding", "tower_embedding", "cross_embedding")
            if key in out
        ]
        loss = sum(part.cos().sum() for part in (embedded, *kept))
        loss.backward()
        results.append(
            (
                [embedded, *kept],
                {n: p.grad for n, p in model.named_parameters() if p.grad is not None},
            )
        )
    (expected, gradients), (found, flat_gradients) = results
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(flat_gradients[name], gradient, rtol=1e-5, atol=1e-5, msg=name)


def test_flat_inputs_give_an_ensemble_the_padded_embeddings_too():
    members = [make_tower("roberta", seed) for seed in (1, 2)]
    encoder = EnsembleEncoder.from_members(
        members, [0.3, 0.7], pooling="mean", tokenizer=make_tokenizer()
    )
    model = SentenceTransformer(modules=[encoder, Pooling(32, "cls")], device="cpu").eval()
    found = model(flat_features(model, SENTENCES))["sentence_embedding"]
    torch.testing.assert_close(
        found, model(model.preprocess(SENTENCES))["sentence_embedding"], rtol=1e-5, atol=1e-5
    )


def test_one_tower_with_a_head_shows_its_pooled_state_of_flat_inputs_too():
    encoder = transformer_of(Transformer, make_tower("bert", 1), make_tokenizer())
    model = SentenceTransformer(
        modules=[encoder, PoolerModulusHead(), Pooling(32, "mean")], device="cpu"
    ).eval()
    out = model(model.preprocess(SENTENCES) | {"tower_outputs": True})
    torch.testing.assert_close(out["tower_embedding"][:, 0], out["sentence_embedding"])


def test_a_type_without_poolers_has_some_of_the_seed_or_none():
    towers = [make_tower("distilbert", seed) for seed in (1, 2)]
    drawn = [twin_of(*towers, pooler_seed=seed) for seed in (0, 0, 1)]
    weights = [twin.tower_poolers()[0].dense.weight for twin in drawn]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    without = twin_of(*towers, pooler_seed=None)
    assert without.tower_poolers() == () and not any(
        "pooler" in name for name in without.state_dict()
    )
    with pytest.raises(
        PoolerNeeded,
        match="Towers of the type 'distilbert' have no pooler weights; give a pooler_seed",
    ):
        twin_of(*towers, pooler_seed=None, pooling="pooler")
    encoder = TwinCrossAttentionEncoder.from_towers(
        *towers, pooler_seed=None, tokenizer=make_tokenizer()
    )
    with pytest.raises(
        UserError, match="needs an encoder with a pooler, found TwinEncoderModel without one"
    ):
        SentenceTransformer(
            modules=[encoder, PoolerModulusHead(), Pooling(32, "cls")], device="cpu"
        )


def test_what_makes_no_twin_is_refused_in_one_sentence():
    first = make_tower("modernbert", 1)
    with pytest.raises(
        UserError,
        match=r"'albert' have no cross-attention, .* do without it \(cross_attention_every: "
        r"null\)\.$",
    ):
        twin_of(make_tower("albert", 1), make_tower("albert", 2))
    with pytest.raises(
        UserError, match=r"The towers differ in local_attention: 4 in the first, 6 in the second"
    ):
        twin_of(first, make_tower("modernbert", 2, local_attention=6))
    tokenizer = make_tokenizer()
    tokenizer.padding_side = "left"  # BERT counts positions from the row's start.
    berts = [make_tower("bert", seed) for seed in (1, 2)]
    with pytest.raises(
        UserError, match=r"last token of a twin_encoder model depends on its padding, .* the left"
    ):
        TwinCrossAttentionEncoder.from_towers(*berts, pooling="lasttoken", tokenizer=tokenizer)
    with pytest.raises(
        UserError,
        match="A tower must be one encoder, found 'twin_encoder', which is made of several",
    ):
        twin_of(first, twin_of(first, first))
