"""The second encoder that reads sentences from their embeddings: its loss by hand, what it trains,
what it refuses.
"""

import math
import re

import pytest
import torch
from conftest import make_config, make_model, make_pipeline, make_sentences, make_tokenizer
from sentence_transformers.sentence_transformer.modules import Dense
from transformers import BertForMaskedLM, DataCollatorForLanguageModeling

from st_jtcse.errors import UserError
from st_jtcse.losses import DiffCSELoss, InfoCSELoss
from st_jtcse.papers.losses.reading_head import MaskedTokens, ReplacedTokens

# Of one length: nothing is padded.
SENTENCES = [
    "the man runs slowly in the park",
    "a dog eats two red apple and",
    "one child reads near the old house",
]
CLS, SEP, MASK = 2, 3, 4
BOTH = pytest.mark.parametrize("kind", [DiffCSELoss, InfoCSELoss])


@pytest.fixture
def model(tower_folders):
    return make_model(tower_folders[0]).eval()


def head_of(model, kind, *generator):
    head = kind(model.double(), 0.5, *generator).double().eval()
    head.seen = []
    head.copied.embeddings.register_forward_pre_hook(
        lambda _, a, given: head.seen.append(given["input_ids"]), with_kwargs=True
    )
    return head


def masked(model, ids, seed):
    """What transformers masks of tokens, and which."""
    torch.manual_seed(seed)
    collate = DataCollatorForLanguageModeling(model.tokenizer, mlm_probability=0.5)
    found, labels = collate.torch_mask_tokens(
        ids.clone(), special_tokens_mask=(ids == CLS) | (ids == SEP)
    )
    return found, labels != -100


def run(encoder, ids, mask, layers, entered):
    """The states behind layers of a plain encoder, where the state of its first token is another
    from one layer on.
    """
    at, embeddings = entered

    def enter(layer, given):
        return (torch.cat([embeddings[:, None], given[0][:, 1:]], dim=1), *given[1:])

    handle = encoder.encoder.layer[at].register_forward_pre_hook(enter)
    kept, encoder.encoder.layer = encoder.encoder.layer, encoder.encoder.layer[layers]
    states = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
    encoder.encoder.layer = kept
    handle.remove()
    return states


def test_replaced_tokens_are_told_from_the_others_by_the_embedding(model):
    """Two views of three sentences, one padded; each replacement is a word of the batch."""
    features = model.preprocess([*SENTENCES[:2], "a bird"])
    head, embeddings = head_of(model, ReplacedTokens), torch.randn(6, 32, dtype=torch.double)
    torch.manual_seed(3)
    found = head(embeddings, features)
    ids, mask = features["input_ids"].repeat(2, 1), features["attention_mask"].repeat(2, 1)
    (edited,) = head.seen
    words = (ids > MASK) & mask.bool()
    replaced = edited != ids
    assert (
        4 <= replaced.sum() < words.sum()
        and not (replaced & ~words).any()
        and (edited[:3] != edited[3:]).any()
    )
    assert set(edited[replaced].tolist()) <= set(ids[words].tolist())
    states = run(model[0].model, edited, mask, slice(0, 4), (0, embeddings))
    scores = states @ head.output.weight[0]
    expected = [
        -math.log(1 / (1 + math.exp(-score if changed else score)))
        for score, changed in zip(scores[words].tolist(), replaced[words].tolist())
    ]
    assert found.item() == pytest.approx(sum(expected) / len(expected), abs=1e-9)


def test_masked_tokens_are_filled_in_by_two_layers_behind_the_frozen_half(model):
    features = model.preprocess(SENTENCES)
    ids, mask = features["input_ids"], features["attention_mask"]
    head, embeddings = head_of(model, MaskedTokens), torch.randn(3, 32, dtype=torch.double)
    hidden, chosen = masked(model, ids, 5)
    torch.manual_seed(5)
    found = head(embeddings, features)
    assert torch.equal(head.seen[0], hidden) and (hidden == MASK).sum() > 4
    states = run(model[0].model, hidden, mask, slice(0, 4), (2, embeddings))
    scores = states @ head.output.weight.T @ model[0].model.embeddings.word_embeddings.weight.T
    expected = -scores.log_softmax(-1).gather(-1, ids[..., None])[chosen].mean()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_a_generator_proposes_its_likeliest_words_and_is_not_saved(model, tmp_path):
    torch.manual_seed(7)
    generator = BertForMaskedLM(make_config(num_hidden_layers=1)).double().eval()
    generator.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    head, features = head_of(model, ReplacedTokens, str(tmp_path)), model.preprocess(SENTENCES)
    ids = features["input_ids"]
    hidden, chosen = masked(model, ids, 5)
    torch.manual_seed(5)
    head(torch.ones(3, 32, dtype=torch.double), features)
    likeliest = generator(hidden, features["attention_mask"]).logits.argmax(-1)
    assert (
        torch.equal(head.seen[0], torch.where(chosen, likeliest, ids))
        and (head.seen[0] != ids).sum() > 4
    )
    assert {name.split(".")[0] for name in head.state_dict()} == {"copied", "output"}


@BOTH
def test_gradients_reach_the_model_by_the_embedding_alone_and_the_copy_learns(model, kind):
    model.train()
    masks = kind is InfoCSELoss
    reading = "masked_tokens" if masks else "replaced_tokens"
    loss = kind(model, reading_weight=2.0, mask_share=0.5)
    features = model.preprocess(make_sentences(8))
    torch.manual_seed(0)
    terms = loss([features])
    terms[reading].backward()
    assert terms.keys() == {"nce", reading}
    assert all(
        weight.grad.abs().max() > 0
        for weight in model[0].model.encoder.parameters()
        if weight.dim() > 1
    )
    layers, trained = (
        loss.reader.copied.encoder.layer,
        slice(2, 4) if masks else slice(0, 4),
    )
    assert all(weight.grad is not None for weight in layers[trained].parameters())
    frozen = [*layers[: trained.start].parameters()]
    frozen += [loss.reader.copied.embeddings.word_embeddings.weight] if trained.start else []
    assert not any(weight.requires_grad or weight.grad is not None for weight in frozen)
    half = kind(model, reading_weight=1.0, mask_share=0.5)
    torch.manual_seed(0)
    torch.testing.assert_close(2 * half([features])[reading], terms[reading], rtol=1e-5, atol=1e-6)
    optimizer = torch.optim.AdamW(
        [weight for weight in loss.parameters() if weight.requires_grad], lr=3e-3
    )
    values = []
    for _ in range(40):
        optimizer.zero_grad()
        torch.manual_seed(
            0
        )  # Chance proposes the same words again, which the two encoders come to tell.
        value = loss([features])[reading]
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert sum(values[-5:]) < 0.8 * sum(values[:5])


def test_a_batch_without_words_has_nothing_to_read(model):
    features = model.preprocess([""])
    for kind in (ReplacedTokens, MaskedTokens):
        assert head_of(model, kind)(torch.ones(1, 32, dtype=torch.double), features).item() == 0


@BOTH
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reading_weight": 0}, "reading_weight: expected a number above 0, found 0"),
        ({"mask_share": 1}, "mask_share: expected"),
    ],
    ids=str,
)
def test_values_that_read_nothing_are_refused(model, kind, settings, message):
    with pytest.raises(UserError, match=re.escape(message)):
        kind(model, **settings)


def test_models_that_cannot_be_read_are_refused(model, tower_folders, tmp_path):
    def refused(message, model=model, features=None, **settings):
        with pytest.raises(UserError, match=message):
            loss = DiffCSELoss(model, **settings)
            loss.reader(torch.ones(1, 8), features)

    refused(
        "whole embeddings; leave out flash attention",
        features=model.preprocess(SENTENCES[:1]),
    )
    refused("found TwinCrossAttentionEncoder; choose another loss", make_pipeline(tower_folders))
    refused("has no such head", generator=str(tower_folders[0]))
    BertForMaskedLM(make_config(num_hidden_layers=1)).save_pretrained(tmp_path)
    make_tokenizer(["other", "words"]).save_pretrained(tmp_path)
    refused("expected the vocabulary of the model itself, found another", generator=str(tmp_path))
    narrow = make_model(tower_folders[0])
    narrow.append(Dense(32, 8))
    refused("as wide as the encoder's states, 32, found 8", narrow)
    without = make_model(tower_folders[0])
    without.tokenizer.mask_token = None
    refused("needs a tokenizer with a mask token", without)
