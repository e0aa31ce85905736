"""LS-RNS against sums written out in float64, and the properties its weights must have."""

import itertools
import math
from typing import get_args

import pytest
import torch
from conftest import make_sentences, save_encoder
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import cos_sim
from torch.autograd import gradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from st_jtcse.errors import UserError
from st_jtcse.losses import LSRNSLoss, SimCSELoss, lsrns
from st_jtcse.losses import negative_ranks as functions
from st_jtcse.losses.functional import cosines, nt_xent, products
from st_jtcse.losses.negative_ranks import (
    Ranks,
    Retention,
    asymmetric_contrastive,
    label_smoothing,
    negative_ranks,
    negative_weights,
    relevance,
    retention,
    smoothed_distribution,
)
from st_jtcse.losses.terms import Anchors, Batch
from st_jtcse.losses.views import teacher_vectors

RANKS, RETENTIONS = get_args(Ranks), get_args(Retention)

B = 6
OTHERS = [(i, j) for i in range(B) for j in range(B) if i != j]


@pytest.fixture
def similarities():
    generator = torch.Generator().manual_seed(3)
    student = torch.rand(B, B, generator=generator, dtype=torch.float64) * 2 - 1
    vectors = torch.nn.functional.normalize(
        torch.randn(B, 4, generator=generator, dtype=torch.float64)
    )
    return student, vectors @ vectors.T


def weights_of(scores, ranks="soft", kept="linear", temperature=0.3):
    return negative_weights(
        smoothed_distribution(scores, retention(negative_ranks(scores, ranks), kept), temperature)
    )


def test_soft_ranks_are_the_sum_of_sigmoids(similarities):
    _, scores = similarities
    found = negative_ranks(scores, "soft", softness=0.2)
    for i, j in OTHERS:
        above = sum(
            1 / (1 + math.exp(-(scores[i, k] - scores[i, j]) / 0.2))
            for k in range(B)
            if k not in (i, j)
        )
        assert float(found[i, j]) == pytest.approx(1 + above, rel=1e-12)
    assert found.diagonal().tolist() == [0.0] * B
    # Sharp enough they are the places of the order.
    order = negative_ranks(scores, "soft", softness=1e-6)
    assert sorted(order[0][1:].round().tolist()) == [1, 2, 3, 4, 5]


def test_few_anchors_at_a_time_are_the_same(similarities, monkeypatch):
    _, scores = similarities
    whole = [negative_ranks(scores, kind) for kind in RANKS]
    monkeypatch.setattr(functions, "_ELEMENTS", 2 * B * B)
    for kind, expected in zip(RANKS, whole):
        torch.testing.assert_close(negative_ranks(scores, kind), expected)


def test_groups_and_bins_by_hand():
    row = [9.0, 0.9, 0.8, 0.7, 0.2, 0.1]  # the first is the anchor itself
    scores = torch.tensor(row, dtype=torch.float64).expand(B, B)
    percentile = negative_ranks(scores, "percentile", groups=2)[0]
    assert percentile.tolist() == [0, 2.5, 2.5, 5, 5, 5]
    bins = negative_ranks(scores, "bins", groups=4)[0]
    # Widths of 0.2 from 0.9 down: 0.9, 0.8 and 0.7 | | | 0.2, 0.1
    assert bins.tolist() == [0, 1.25, 1.25, 1.25, 5, 5]


@pytest.mark.parametrize("kept", RETENTIONS)
def test_retention_by_hand_falls_with_the_rank(kept):
    ranks = torch.arange(1.0, B).expand(B, B - 1)
    matrix = torch.zeros(B, B, dtype=torch.float64)
    matrix[0, 1:] = ranks[0]
    formula = {
        "linear": lambda r: 1 - r / 6,
        "to_zero": lambda r: 1 - r / 5,
        "exponential": lambda r: math.exp(-r / 5),
        "reciprocal": lambda r: 1 / r,
    }
    found = retention(matrix, kept)[0, 1:].tolist()
    assert found == pytest.approx([formula[kept](r) for r in range(1, B)])
    assert found == sorted(found, reverse=True) and len(set(found)) == 5


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("kept", RETENTIONS)
def test_weights_have_mean_one_and_a_harder_negative_never_gets_less(similarities, ranks, kept):
    _, scores = similarities
    found = weights_of(scores, ranks, kept)
    for i in range(B):
        own = [j for j in range(B) if j != i]
        assert float(found[i][own].mean()) == pytest.approx(1, rel=1e-12)
        by_score = sorted(own, key=lambda j: -float(scores[i, j]))
        masses = found[i][by_score].tolist()
        assert masses == sorted(masses, reverse=True)
        assert masses[0] > masses[-1]


def test_equal_scores_have_equal_weights(similarities):
    _, scores = similarities
    scores = scores.clone()
    scores[0, 2] = scores[0, 4]
    for ranks in RANKS:
        assert weights_of(scores, ranks)[0, 2] == weights_of(scores, ranks)[0, 4]
    level = torch.full((B, B), 0.3, dtype=torch.float64)
    assert torch.allclose(weights_of(level), 1 - torch.eye(B, dtype=torch.float64), atol=1e-12)


def test_permuting_the_batch_permutes_the_weights(similarities):
    _, scores = similarities
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    for ranks in RANKS:
        moved = weights_of(scores[order][:, order], ranks)
        assert torch.allclose(moved, weights_of(scores, ranks)[order][:, order], atol=1e-12)


def test_contrastive_and_smoothing_are_their_sums(similarities):
    student, scores = similarities
    weights = weights_of(scores)
    mass = weights / (B - 1)
    contrastive = smoothing = 0.0
    for i in range(B):
        own = math.exp(float(student[i, i]) / 0.2)
        others = {j: math.exp(float(student[i, j]) / 0.2) for j in range(B) if j != i}
        contrastive -= (
            math.log(own / (own + sum(float(weights[i, j]) * value for j, value in others.items())))
            / B
        )
        total = own + sum(others.values())
        smoothing -= 0.9 * math.log(own / total) / B
        smoothing -= (
            sum(0.1 * float(mass[i, j]) * math.log(value / total) for j, value in others.items())
            / B
        )
    assert float(asymmetric_contrastive(student, weights, 0.2)) == pytest.approx(
        contrastive, rel=1e-12
    )
    assert float(label_smoothing(student, mass, 0.2, 0.1)) == pytest.approx(smoothing, rel=1e-12)


def test_relevance_falls_from_one(similarities):
    _, scores = similarities
    grades = relevance(negative_ranks(scores, "percentile", groups=5))
    assert sorted(grades[0][1:].tolist()) == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


def test_gradients(similarities):
    student, scores = similarities
    mass = smoothed_distribution(scores, retention(negative_ranks(scores)), 0.3)
    student.requires_grad_()
    assert gradcheck(lambda s: asymmetric_contrastive(s, negative_weights(mass), 0.2), (student,))
    assert gradcheck(lambda s: label_smoothing(s, mass, 0.2, 0.1), (student,))


def test_equal_weights_over_the_rows_of_both_views_are_nt_xent_exactly():
    generator = torch.Generator().manual_seed(5)
    views = [torch.randn(B, 8, generator=generator, dtype=torch.float64) for _ in range(2)]
    rows = torch.cat(views)
    # Each row's positive on the diagonal; the row itself, no candidate, has weight 0.
    student = cosines(rows, torch.cat(views[::-1]))
    weights = (1 - torch.eye(B, dtype=torch.float64)).repeat(2, 2)
    found = asymmetric_contrastive(student, weights, 0.05)
    torch.testing.assert_close(found, nt_xent(*views, 0.05), rtol=1e-12, atol=0)


class Given(Anchors):
    """Every sentence as an anchor, with similarities that are given."""

    def __init__(self, similarities, scores):
        super().__init__(Batch(None, {}, {}), 0, len(scores))
        self.similarities = similarities
        self.taught = lambda: scores


def terms_of(loss, similarities, scores):
    anchors = Given(similarities, scores)
    return {name: term.weight * term(anchors) for name, term in loss.terms.items()}


@pytest.mark.parametrize("ranks", ["soft", "percentile", "bins"])
@pytest.mark.parametrize("rank_loss", ["listnet", "listmle", "cosent"])
def test_the_loss_does_not_depend_on_the_order_of_the_batch(
    student, similarities, rank_loss, ranks
):
    own, scores = similarities
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    loss = LSRNSLoss(student, rank_loss=rank_loss, ranks=ranks)
    loss.scorer.groups = 2
    moved = terms_of(loss, own[order][:, order], scores[order][:, order])
    for name, value in terms_of(loss, own, scores).items():
        torch.testing.assert_close(moved[name], value, rtol=1e-10, atol=0)


@pytest.fixture
def student(tmp_path):
    folder = save_encoder(tmp_path / "student", 1)
    model = SentenceTransformer(
        modules=[Transformer(str(folder)), Pooling(32, "cls")], device="cpu"
    )
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.train()


def test_equal_weights_and_no_smoothing_are_simcse_exactly(student):
    features = [student.preprocess(make_sentences(6))]
    expected = SimCSELoss(student)([dict(features[0])])
    level = torch.ones(6, 1)  # every sentence is as similar to every other
    only = {"rank_weight": 0}
    by_weights = LSRNSLoss(student, **only, smoothing_weight=0)([dict(features[0])], level)
    assert by_weights.keys() == {"contrastive"}
    torch.testing.assert_close(by_weights["contrastive"], expected)
    labels = torch.randn(6, 8)
    settings = {**only, "contrastive_weight": 0, "smoothing_weight": 1}
    unsmoothed = LSRNSLoss(student, **settings)
    unsmoothed.terms["smoothing"].epsilon = 0.0
    by_smoothing = unsmoothed([dict(features[0])], labels)
    torch.testing.assert_close(by_smoothing["smoothing"], expected)
    plain = LSRNSLoss(student, **only, smoothing_weight=0, asymmetric=False)(
        [dict(features[0])], labels
    )
    torch.testing.assert_close(plain["contrastive"], expected)


def test_half_precision_training_ranks_in_full_precision(student):
    # Neighbours whose cosines bfloat16, with its eight bits, cannot tell apart.
    angles = torch.tensor([0.0, 0.300, 0.301, 0.302, 0.303, 0.304])
    labels = torch.stack([angles.cos(), angles.sin()], dim=1)
    rows = torch.randn(6, 32)
    exact = cos_sim(rows, rows)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = teacher_vectors(labels, LSRNSLoss(student), gather=False)
        found = products(vectors, vectors)
        torch.testing.assert_close(cosines(rows, rows), exact)
    assert len(set(found[0].bfloat16().tolist())) < len(set(found[0].tolist())) == 6
    torch.testing.assert_close(found, torch.cos(angles[:, None] - angles))


@pytest.mark.parametrize("rank_loss", ["listnet", "listmle", "cosent"])
def test_terms_are_weighted_and_named(student, rank_loss):
    features = student.preprocess(make_sentences(6))
    labels = torch.nn.functional.normalize(torch.randn(6, 8))
    loss = LSRNSLoss(student, rank_loss=rank_loss)
    single = loss([dict(features)], labels)
    assert list(single) == ["contrastive", "rank", "smoothing"]
    rebuilt = LSRNSLoss(
        student,
        **loss.get_config_dict()
        | {"contrastive_weight": 2.0, "rank_weight": 3.0, "smoothing_weight": 4.0},
    )
    for (name, value), factor in zip(rebuilt([dict(features)], labels).items(), (2, 3, 4)):
        torch.testing.assert_close(value, factor * single[name])
    # The rank term is least where the student has the scorer's order.
    scores = labels @ labels.T
    follows, against = (terms_of(loss, sign * scores, scores)["rank"] for sign in (1, -1))
    assert follows < against


def test_a_last_batch_of_one_sentence_has_no_negative(student):
    for weights, named in (
        ({}, ["contrastive", "rank", "smoothing"]),
        ({"contrastive_weight": 0.0}, ["rank", "smoothing"]),
    ):
        terms = LSRNSLoss(student, **weights)(
            [student.preprocess(["the dog runs"])], torch.ones(1, 4)
        )
        assert {name: float(value.detach()) for name, value in terms.items()} == dict.fromkeys(
            named, 0.0
        )
    two = LSRNSLoss(student)(
        [student.preprocess(["the dog runs", "a cat sleeps"])], torch.randn(2, 4)
    )
    assert all(torch.isfinite(value) for value in two.values())


def test_judged_pairs_replace_the_scorers_similarities(student):
    sentences = make_sentences(6)
    features = student.preprocess(sentences)
    labels = torch.nn.functional.normalize(torch.randn(6, 8))
    loss = LSRNSLoss(student)
    # In the other order, and beside sentences that the batch has not.
    loss.use_pair_scores(
        [(sentences[4], sentences[1], 0.9), ("the dog runs home", sentences[2], 0.1)]
    )
    found = loss([dict(features)], labels)
    unit = torch.nn.functional.normalize(student(dict(features))["sentence_embedding"])
    scores = labels @ labels.T
    plain = terms_of(LSRNSLoss(student), unit @ unit.T, scores)
    scores[1, 4] = scores[4, 1] = 0.9
    expected = terms_of(LSRNSLoss(student), unit @ unit.T, scores)
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name])
        assert not torch.isclose(value, plain[name])


class Operations(TorchDispatchMode):
    """Counts what is launched."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def test_judged_pairs_are_assigned_at_once_however_many(student):
    sentences = list(dict.fromkeys(make_sentences(12)))[:8]
    pairs = [
        (*pair, number / 28) for number, pair in enumerate(itertools.combinations(sentences, 2))
    ]
    keys = lsrns.token_keys(student.preprocess(sentences)).tolist()
    scores = torch.rand(8, 8)
    launched = []
    for count in (1, 28):
        loss = LSRNSLoss(student)
        loss.use_pair_scores(pairs[:count])
        with Operations() as operations:
            found = loss.scorer.with_judged(scores, keys)
        launched.append(operations.count)
        expected = scores.clone()
        for first, second, score in pairs[:count]:
            i, j = sentences.index(first), sentences.index(second)
            expected[i, j] = expected[j, i] = score
        assert torch.equal(found, expected)
    assert launched[0] == launched[1]
    # A batch without any judged pair.
    loss.use_pair_scores([("the dog runs home", "a cat", 0.5)])
    assert torch.equal(loss.scorer.with_judged(scores, keys), scores)


def test_two_scores_of_the_same_tokens_are_refused(student):
    loss = LSRNSLoss(student)
    student.max_seq_length = 5  # Three words.
    pairs = [("a cat", "the big dog runs", 0.25), ("the big dog plays", "a cat", 0.75)]
    with pytest.raises(UserError) as caught:
        loss.use_pair_scores(pairs)
    assert str(caught.value) == (
        "The judged pair 'the big dog plays', 'a cat' has the score 0.75, and 'a cat', 'the big "
        "dog runs', which has "
        "the same tokens to this model, 0.25; keep one of them."
    )
    loss.use_pair_scores([(first, second, 0.25) for first, second, _ in pairs])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ranks": "hard"}, "ranks: expected one of 'soft', 'percentile', 'bins', found 'hard'."),
        (
            {"retention": "none"},
            "retention: expected one of 'linear', 'to_zero', 'exponential', 'reciprocal', found "
            "'none'.",
        ),
        (
            {"rank_loss": "mse"},
            "rank_loss: expected one of 'listnet', 'listmle', 'cosent', found 'mse'.",
        ),
        ({"temperature": 0.0}, "temperature: expected a number above 0, found 0.0."),
        ({"rank_weight": -1.0}, "rank_weight: expected a number of at least 0, found -1.0."),
        (
            {"contrastive_weight": 0.0, "rank_weight": 0.0, "smoothing_weight": 0.0},
            "one of them positive",
        ),
    ],
)
def test_values_out_of_range_are_refused(student, settings, message):
    with pytest.raises(UserError) as caught:
        LSRNSLoss(student, **settings)
    assert message in str(caught.value)


def test_labels_must_be_vectors(student):
    with pytest.raises(
        UserError,
        match="needs one teacher vector per sentence as its label, found none; give teachers",
    ):
        LSRNSLoss(student)([student.preprocess(make_sentences(4))])
