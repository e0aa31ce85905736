"""Sentences flattened into one row, as Sentence-Transformers gives them to a loss under flash
attention.
"""

import copy

import pytest
import torch
from conftest import make_encoder, make_sentences, make_tokenizer, training_arguments
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.sentence_transformer.modules import Pooling
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from st_jtcse.losses import JTCSELoss, LSRNSLoss, RankCSELoss, SimCSELoss
from st_jtcse.losses.views import part_of_flattened
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder
from st_jtcse.modules.attention_pooling import AttentionPooling

SENTENCES = make_sentences(7)
TEACHER = F.normalize(torch.randn(7, 12, generator=torch.Generator().manual_seed(3)), dim=1)
NAME = "by_boundaries"


def by_boundaries(
    module,
    query,
    key,
    value,
    attention_mask,
    dropout=0.0,
    scaling=None,
    cu_seq_lens_q=None,
    **kwargs,
):
    """Exact attention of every sentence to itself, by the boundaries or by the mask."""
    if cu_seq_lens_q is not None:
        lengths = cu_seq_lens_q.diff()
        sentence = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        attention_mask = (sentence[:, None] == sentence[None, :])[None, None]
    attended = F.scaled_dot_product_attention(
        query, key, value, attention_mask, dropout, scale=scaling
    )
    return attended.transpose(1, 2).contiguous(), None


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Encoders without dropout, so that both ways give the same numbers."""
    AttentionInterface.register(NAME, by_boundaries)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    root = tmp_path_factory.mktemp("flattened")
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    for seed, family, name in (
        (1, "bert", "bert"),
        (2, "bert", "partner"),
        (1, "roberta", "roberta"),
    ):
        make_encoder(seed, family, **off).save_pretrained(root / name)
        make_tokenizer().save_pretrained(root / name)
    return root


@pytest.fixture
def load(folders, monkeypatch):
    """Load an encoder with a pooling; Sentence-Transformers flattens, told that there is a flash
    attention.
    """
    found = "transformers.modeling_flash_attention_utils.lazy_import_flash_attention"
    monkeypatch.setattr(found, lambda name, **settings: ((None, by_boundaries, None, None), None))
    monkeypatch.setattr(Transformer, "_is_flash_attention_requested", lambda self: True)

    def load(family="bert", pooling="mean", flattened=True):
        kwargs = {"attn_implementation": NAME}
        if family == "twin":
            towers = (folders / "bert", folders / "partner")
            encoder, pooling = (
                TwinCrossAttentionEncoder.from_towers(*towers, pooling=pooling, **kwargs),
                "cls",
            )
        else:
            encoder = Transformer(str(folders / family), model_kwargs=kwargs)
        encoder.unpad_inputs = None if flattened else False
        torch.manual_seed(0)
        pooled = AttentionPooling(32) if pooling == "attention" else Pooling(32, pooling)
        model = SentenceTransformer(
            modules=[encoder, PoolerModulusHead(), pooled], device="cpu"
        ).train()
        assert ("attention_mask" not in model.preprocess(SENTENCES)) == flattened
        return model

    return load


def test_some_sentences_are_cut_out_of_a_flattened_batch(load):
    """As Sentence-Transformers cuts them in its own mini-batches, where no public name offers it."""
    model = load()
    whole, some = model.preprocess(SENTENCES), model.preprocess(SENTENCES[2:5])
    part = part_of_flattened(whole, 2, 5)
    assert part.keys() == some.keys() and "cu_seq_lens_q" in part
    for key, value in some.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(part[key], value), key
        else:
            assert part[key] == value, key


def gradients(model, build, labels=None):
    """The terms of a loss on the sentences, and the gradient of each weight."""
    model.zero_grad()
    terms = build(model)([model.preprocess(SENTENCES)], labels)
    terms = terms if isinstance(terms, dict) else {"loss": terms}
    sum(terms.values()).backward()
    return terms, {
        name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None
    }


def agree(found, expected):
    assert found[0].keys() == expected[0].keys() and found[1].keys() == expected[1].keys()
    for name, value in expected[0].items():
        torch.testing.assert_close(found[0][name], value, rtol=1e-5, atol=1e-5, msg=name)
    largest = max(gradient.abs().max() for gradient in expected[1].values())
    assert largest > 1e-3
    for name, gradient in expected[1].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    ("build", "labels"),
    [
        (SimCSELoss, None),
        (lambda model: SimCSELoss(model, candidates="both_views"), None),
        (lambda model: SimCSELoss(model, mini_batch_size=3), None),
        (lambda model: JTCSELoss(model, icnce_weight=0, cross_weight=0), None),
        (RankCSELoss, TEACHER),
        (lambda model: RankCSELoss(model, ranking="cosent"), TEACHER),
        (lambda model: RankCSELoss(model, ranking="listmle"), TEACHER),
        (LSRNSLoss, TEACHER),
        (lambda model: MatryoshkaLoss(model, SimCSELoss(model), [32, 8]), None),
    ],
    ids="SimCSE,both views,mini-batches,JTCSE of one "
    "tower,RankCSE,CoSENT,ListMLE,LSRNS,Matryoshka".split(","),
)
def test_terms_and_gradients_are_those_of_padded_sentences(load, build, labels):
    agree(gradients(load(), build, labels), gradients(load(flattened=False), build, labels))


@pytest.mark.parametrize("pooling", ["cls", "lasttoken", "attention"])
def test_other_poolings_agree_too(load, pooling):
    padded = gradients(load(pooling=pooling, flattened=False), SimCSELoss)
    agree(gradients(load(pooling=pooling), SimCSELoss), padded)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_all_terms_of_two_towers_agree_too(load, pooling):
    flat, padded = (
        gradients(load("twin", pooling, flattened), JTCSELoss) for flattened in (True, False)
    )
    assert flat[0].keys() == {"nce", "icnce", "icnce_cross", "ictm"}
    agree(flat, padded)


def test_positions_that_do_not_start_at_zero_agree(load):
    agree(
        gradients(load("roberta"), SimCSELoss),
        gradients(load("roberta", flattened=False), SimCSELoss),
    )


def test_with_dropout_the_views_of_a_flattened_batch_differ(load):
    model = load()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.2
    torch.manual_seed(0)
    rows = model(copy.deepcopy(model.preprocess(SENTENCES * 2)))["sentence_embedding"]
    assert (rows[:7] - rows[7:]).abs().amax(dim=1).min() > 1e-3


def test_judged_pairs_are_found_by_their_tokens(load):
    losses = []
    for flattened in (True, False):
        model = load(flattened=flattened)
        loss = LSRNSLoss(model)
        before = loss([model.preprocess(SENTENCES)], TEACHER)
        loss.use_pair_scores([(SENTENCES[0], SENTENCES[3], 0.9), (SENTENCES[5], SENTENCES[1], 0.1)])
        losses.append(loss([model.preprocess(SENTENCES)], TEACHER))
        assert abs(losses[-1]["rank"] - before["rank"]) > 1e-4
    for name, value in losses[1].items():
        torch.testing.assert_close(losses[0][name], value, rtol=1e-5, atol=1e-5, msg=name)


def test_the_order_of_the_towers_is_drawn_from_the_same_sum(load):
    orders = []
    for flattened in (True, False):
        model = load(flattened=flattened)
        loss = JTCSELoss(model, icnce_weight=0, cross_weight=0, ictm_weight=0)
        orders.append(
            [loss.order.draw(model.preprocess(make_sentences(5, seed))) for seed in range(12)]
        )
    assert orders[0] == orders[1] and len(set(orders[0])) == 2


def test_a_model_trains_on_flattened_sentences(load, tmp_path):
    model = load()
    before = copy.deepcopy(model.state_dict())
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.1
    SentenceTransformerTrainer(
        model,
        args=training_arguments(tmp_path, max_steps=2),
        train_dataset=Dataset.from_dict({"sentence": make_sentences(16)}),
        loss=SimCSELoss(model),
    ).train()
    assert any(not torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
