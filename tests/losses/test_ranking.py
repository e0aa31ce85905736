"""Ranking terms against sums written out in float64."""

import math

import pytest
import torch
from conftest import make_sentences, save_encoder
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder import CrossEncoder
from sentence_transformers.sentence_transformer.losses import ContrastiveLoss
from sentence_transformers.sentence_transformer.modules import Pooling
from torch.autograd import gradcheck

from st_jtcse.errors import UserError
from st_jtcse.losses import CrossEncoderCoSENTLoss, RankCSELoss, SimCSELoss
from st_jtcse.losses.ranking import cosent, cosent_in_batch, listmle, listnet, ranking_consistency

B = 5


@pytest.fixture
def similarities():
    generator = torch.Generator().manual_seed(3)
    student, teacher = (
        torch.rand(B, B, generator=generator, dtype=torch.float64) * 2 - 1 for _ in range(2)
    )
    return student, teacher


def softmax(values):
    total = sum(math.exp(value) for value in values)
    return [math.exp(value) / total for value in values]


def lists(matrix, temperature):
    rows = matrix.tolist()
    return [softmax([rows[i][j] / temperature for j in range(B) if j != i]) for i in range(B)]


@pytest.mark.parametrize("threshold", [-1.0, -0.5, 0.0, 0.5, 0.9])
def test_the_contrastive_margin_is_one_minus_a_threshold_of_the_cosine(threshold):
    a, b = torch.randn(2, 8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    cosines, labels = torch.cosine_similarity(a, b), torch.tensor([0, 1] * 4)
    over = (cosines - threshold).clamp_min(0)
    expected = (labels * (1 - cosines) ** 2 + (1 - labels) * over**2).mean() / 2
    found = ContrastiveLoss(None, margin=1 - threshold).compute_loss_from_embeddings([a, b], labels)
    torch.testing.assert_close(found, expected)


def double_sum(scores, labels, scale):
    total = sum(
        math.exp(scale * (scores[k] - scores[i]))
        for i in range(len(scores))
        for k in range(len(scores))
        if labels[i] > labels[k]
    )
    return math.log(1 + total)


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_cosent_is_the_double_sum_and_leaves_ties_out(scale):
    scores = [0.3, -0.9, 0.7, 0.1, 0.2, 0.65]
    labels = [1.0, 0.0, 2.0, 1.0, 0.0, 1.0]
    found = cosent(torch.tensor(scores, dtype=torch.float64), torch.tensor(labels), scale)
    assert float(found) == pytest.approx(double_sum(scores, labels, scale), rel=1e-12)


def test_cosent_of_equal_labels_is_zero_with_zero_gradient():
    scores = torch.tensor([3.0, -1.0, 2.0], requires_grad=True)
    loss = cosent(scores, torch.ones(3), 1.0)
    loss.backward()
    assert loss.detach() == 0 and scores.grad.tolist() == [0, 0, 0]


def test_cosent_in_batch_ranks_all_ordered_pairs(similarities):
    student, teacher = similarities
    pairs = [(i, j) for i in range(B) for j in range(B) if i != j]
    expected = double_sum(
        [float(student[p]) for p in pairs], [float(teacher[p]) for p in pairs], 20.0
    )
    assert float(cosent_in_batch(student, teacher, 20.0)) == pytest.approx(expected, rel=1e-12)


def test_consistency_is_the_jensen_shannon_divergence_of_the_two_views_lists(similarities):
    student, _ = similarities
    expected = 0.0
    for p, q in zip(lists(student, 0.05), lists(student.T, 0.05)):
        for a, b in zip(p, q):
            m = (a + b) / 2
            expected += (
                ((a * math.log(a / m) if a else 0) + (b * math.log(b / m) if b else 0)) / 2 / B
            )
    assert float(ranking_consistency(student, 0.05)) == pytest.approx(expected, rel=1e-10)
    symmetric = student + student.T
    assert float(ranking_consistency(symmetric, 0.05)) == pytest.approx(0, abs=1e-15)


def test_listnet_is_the_cross_entropy_of_the_lists(similarities):
    student, teacher = similarities
    expected = -sum(
        t * math.log(s)
        for target, own in zip(lists(teacher, 0.025), lists(student, 0.05))
        for t, s in zip(target, own)
    )
    assert float(listnet(student, teacher, 0.05, 0.025)) == pytest.approx(expected / B, rel=1e-10)


def test_listmle_is_the_likelihood_of_the_teachers_order(similarities):
    student, teacher = similarities
    expected = 0.0
    for i in range(B):
        order = sorted((j for j in range(B) if j != i), key=lambda j: -float(teacher[i, j]))
        logits = [float(student[i, j]) / 0.05 for j in order]
        for k in range(len(logits)):
            top = max(logits[k:])
            expected += (
                top + math.log(sum(math.exp(value - top) for value in logits[k:])) - logits[k]
            )
    assert float(listmle(student, teacher, 0.05)) == pytest.approx(expected / B, rel=1e-10)


@pytest.mark.parametrize(
    "term",
    [
        lambda s, t: cosent_in_batch(s, t, 20.0),
        lambda s, t: listnet(s, t, 0.05, 0.025),
        lambda s, t: listmle(s, t, 0.05),
        lambda s, t: ranking_consistency(s, 0.05),
    ],
)
def test_gradients(similarities, term):
    student, teacher = similarities
    assert gradcheck(lambda s: term(s, teacher), (student.requires_grad_(),))


def test_gradients_of_cosent_with_ties():
    scores = torch.tensor([0.3, -0.9, 0.7, 0.1, 0.2, 0.65], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([1.0, 0.0, 2.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    assert gradcheck(lambda s: cosent(s, labels, 5.0), (scores,))
    # The one of the highest label shall rise, one of the lowest fall, and all of them together stay
    # where they are.
    (gradient,) = torch.autograd.grad(cosent(scores, labels, 5.0), scores)
    assert gradient[2] < 0 < gradient[1] and float(gradient.sum()) == pytest.approx(0, abs=1e-12)


def test_a_batch_of_one_sentence_has_nothing_to_rank():
    one = torch.ones(1, 1)
    for value in (cosent_in_batch(one, one, 20.0), listnet(one, one, 1, 1), listmle(one, one, 1)):
        assert float(value) == 0
    assert float(ranking_consistency(one, 0.05)) == 0


def test_distillation_is_least_in_the_teachers_order(similarities):
    _, teacher = similarities
    for term in (lambda s: cosent_in_batch(s, teacher, 20.0), lambda s: listmle(s, teacher, 0.05)):
        assert term(teacher) < term(torch.zeros_like(teacher)) < term(-teacher)


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


@pytest.mark.parametrize("ranking", ["listnet", "listmle", "cosent"])
def test_rankcse_is_the_sum_of_its_terms(student, ranking):
    sentences = make_sentences(6)
    labels = torch.randn(6, 8)
    features = student.preprocess(sentences)
    settings = dict(
        ranking=ranking, consistency_weight=2.0, distillation_weight=3.0, cosent_scale=10.0
    )
    terms = RankCSELoss(student, temperature=0.07, **settings)([features], labels)
    embeddings = student(student.preprocess(sentences))["sentence_embedding"]
    unit = torch.nn.functional.normalize(embeddings)
    own, teacher = unit @ unit.T, labels @ labels.T
    expected = {
        "listnet": listnet(own, teacher, 0.07, 0.035),
        "listmle": listmle(own, teacher, 0.07),
        "cosent": cosent_in_batch(own, teacher, 10.0),
    }[ranking]
    torch.testing.assert_close(terms["distillation"], 3 * expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        terms["nce"], SimCSELoss(student, temperature=0.07)([features]), rtol=1e-5, atol=1e-6
    )
    # Without dropout both views are one, and so are their lists.
    assert float(terms["consistency"].detach()) == pytest.approx(0, abs=1e-5)


def test_rankcse_terms_can_be_switched_off(student):
    loss = RankCSELoss(student, consistency_weight=0, distillation_weight=0)
    assert loss([student.preprocess(make_sentences(4))]).keys() == {"nce"}
    rebuilt = RankCSELoss(
        student,
        **RankCSELoss(
            student, ranking="cosent", cosent_scale=5.0, temperature=0.07
        ).get_config_dict(),
    )
    assert rebuilt.ranking == "cosent" and rebuilt.cosent_scale == 5.0
    assert rebuilt.temperature == pytest.approx(
        0.07
    ) and rebuilt.teacher_temperature == pytest.approx(0.035)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"ranking": "lambda"},
            "ranking: expected one of 'listnet', 'listmle', 'cosent', found 'lambda'",
        ),
        ({"teacher_temperature": 0}, "teacher_temperature: expected a number above 0, found 0"),
        ({"cosent_scale": 0}, "cosent_scale: expected a number above 0, found 0"),
        (
            {"distillation_weight": -1},
            "distillation_weight: expected a number of at least 0, found -1",
        ),
    ],
)
def test_rankcse_refuses_values_out_of_range(student, settings, message):
    with pytest.raises(UserError, match=message):
        RankCSELoss(student, **settings)


def test_rankcse_without_teachers_says_what_to_add(student):
    with pytest.raises(
        UserError, match="one teacher vector per sentence as its label, found none; give teachers"
    ):
        RankCSELoss(student)([student.preprocess(make_sentences(4))])


@pytest.fixture
def cross_encoder(tmp_path):
    return CrossEncoder(str(save_encoder(tmp_path / "cross", 2)), num_labels=1, device="cpu")


def test_the_cross_encoders_cosent_is_the_double_sum_of_its_outputs(cross_encoder):
    cross_encoder.eval()
    first, second = make_sentences(6, seed=1), make_sentences(6, seed=2)
    labels = [0.0, 1.0, 1.0, 2.0, 0.0, 5.0]
    loss = CrossEncoderCoSENTLoss(cross_encoder)([first, second], torch.tensor(labels))
    scores = cross_encoder.predict(list(zip(first, second)), activation_fn=torch.nn.Identity())
    assert float(loss.detach()) == pytest.approx(
        double_sum([float(score) for score in scores], labels, 1.0), rel=1e-4
    )
    with pytest.raises(UserError, match="needs two text columns, found 1"):
        CrossEncoderCoSENTLoss(cross_encoder)([first], torch.tensor(labels))


def test_equal_labels_teach_a_cross_encoder_nothing(cross_encoder):
    texts = [make_sentences(6, seed=1), make_sentences(6, seed=2)]
    loss = CrossEncoderCoSENTLoss(cross_encoder)(texts, torch.full((6,), 2.0))
    loss.backward()
    assert float(loss.detach()) == 0
    gradients = [
        parameter.grad for parameter in cross_encoder.parameters() if parameter.grad is not None
    ]
    assert gradients and all(float(gradient.abs().max()) == 0 for gradient in gradients)
    # One label apart, and the same pairs teach.
    CrossEncoderCoSENTLoss(cross_encoder)(
        texts, torch.tensor([2.0, 2.0, 2.0, 1.0, 2.0, 2.0])
    ).backward()
    assert max(float(gradient.abs().max()) for gradient in gradients) > 0


def test_a_cross_encoder_with_several_outputs_is_refused(tmp_path):
    model = CrossEncoder(str(save_encoder(tmp_path / "three", 2)), num_labels=3, device="cpu")
    with pytest.raises(UserError, match="needs a cross-encoder with one output, found 3"):
        CrossEncoderCoSENTLoss(model)
