"""Sentence-Transformers' MatryoshkaLoss around the losses, against numbers computed apart from
both.
"""

import copy

import numpy as np
import pytest
import torch
from conftest import make_model, make_pipeline, make_sentences, training_arguments
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.sentence_transformer.modules import Dense
from torch.nn import functional as F

from st_jtcse.errors import UserError
from st_jtcse.losses import ArcCSELoss, JTCSELoss, LSRNSLoss, RankCSELoss, SimCSELoss
from st_jtcse.modules import to_inference

SENTENCES = make_sentences(6)
DIMENSIONS, WEIGHTS = [32, 16, 5], [1.0, 0.5, 0.25]
TEACHER = F.normalize(
    torch.randn(6, 12, generator=torch.Generator().manual_seed(3), dtype=torch.float64), dim=1
)


def exact(model):
    """In double precision and without dropout: both views of a sentence are equal."""
    model = copy.deepcopy(model).double().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


@pytest.fixture(scope="module")
def twin(tower_folders):
    return exact(make_pipeline(tower_folders))


@pytest.fixture(scope="module")
def single(model):
    return exact(model)


def cosines(p, q):
    return (p @ q.T) / np.outer(np.linalg.norm(p, axis=1), np.linalg.norm(q, axis=1))


def nt_xent(query, candidate, temperature=0.05):
    """Both views are equal, so every sentence has two equal rows; the row itself is no candidate."""
    logits = np.tile(cosines(query, candidate) / temperature, (2, 2))
    np.fill_diagonal(logits, -np.inf)
    rows = np.arange(len(logits))
    positives = logits[rows, (rows + len(query)) % len(logits)]
    return (np.log(np.exp(logits).sum(axis=1)) - positives).mean()


def terms_by_hand(model, d):
    """The terms of JTCSE Eq. 11 to 14 on the first d components of h and c, in NumPy."""
    with torch.no_grad():
        out = model({**model.preprocess(SENTENCES), "tower_outputs": True})
    h_1, h_2, c_1, c_2 = (
        rows[:, :d].numpy()
        for key in ("tower_embedding", "cross_embedding")
        for rows in out[key].unbind(1)
    )
    p_1, p_2 = (rows.numpy() for rows in out["tower_pooler"].unbind(1))
    cosine = np.diag(cosines(h_1, h_2))
    norm = np.linalg.norm
    modulus = norm(p_1 - p_2, axis=1) / (norm(p_1, axis=1) + norm(p_2, axis=1))
    return {
        "nce": nt_xent(h_1, h_1) + nt_xent(h_2, h_2),
        "icnce": nt_xent(h_1, h_2),
        "icnce_cross": nt_xent(c_1, c_2),
        "ictm": 0.5 * 2 * (-np.log(np.where(cosine > 0, cosine, 1e-4)) * modulus).mean(),
    }


def test_jtcse_is_the_weighted_sum_over_the_cut_states_of_both_towers(twin):
    loss = MatryoshkaLoss(twin, JTCSELoss(twin, direction="1_to_2"), DIMENSIONS, WEIGHTS)
    found = {name: value.item() for name, value in loss([twin.preprocess(SENTENCES)], None).items()}
    by_dimension = [terms_by_hand(twin, d) for d in DIMENSIONS]
    for name in ("nce", "icnce", "icnce_cross", "ictm"):
        expected = sum(weight * terms[name] for weight, terms in zip(WEIGHTS, by_dimension))
        assert found[name] == pytest.approx(expected, rel=1e-9), name
        # Each dimension has a value of its own: one that is cut nowhere would be 1.75 times the
        # first.
        assert expected != pytest.approx(sum(WEIGHTS) * by_dimension[0][name], rel=1e-3), name


def last_bias(model):
    return model[0].model.towers[0].encoder.layer[-1].output.LayerNorm.bias


def test_gradients_reach_the_kept_components_alone(twin):
    model = copy.deepcopy(twin)
    loss = MatryoshkaLoss(model, JTCSELoss(model), [5])
    sum(loss([model.preprocess(SENTENCES)], None).values()).backward()
    gradient = last_bias(model).grad
    # The pooler reads h whole, so that the modulus term reaches the others too.
    assert gradient[5:].abs().min() > 0
    model.zero_grad()
    loss = MatryoshkaLoss(model, JTCSELoss(model, ictm_weight=0), [5])
    sum(loss([model.preprocess(SENTENCES)], None).values()).backward()
    gradient = last_bias(model).grad
    assert gradient[:5].abs().min() > 0 and gradient[5:].abs().max() == 0


class Cut(torch.nn.Module):
    """The first d components of the embedding, as a module of the model."""

    def __init__(self, d):
        super().__init__()
        self.d = d

    def forward(self, features):
        features["sentence_embedding"] = features["sentence_embedding"][:, : self.d]
        return features


@pytest.mark.parametrize(
    ("build", "labels"),
    [
        (SimCSELoss, None),
        (lambda model: SimCSELoss(model, candidates="both_views"), None),
        (ArcCSELoss, None),
        (RankCSELoss, TEACHER),
        (lambda model: RankCSELoss(model, ranking="cosent"), TEACHER),
        (LSRNSLoss, TEACHER),
    ],
    ids="SimCSELoss,both views,ArcCSELoss,RankCSELoss,CoSENT,LSRNSLoss".split(","),
)
def test_the_others_are_the_weighted_sum_of_themselves_on_cut_embeddings(model, build, labels):
    model = copy.deepcopy(model).double().train()
    # With dropout, the same draws each time: the consistency of equal views would be 0.
    torch.manual_seed(0)
    found = MatryoshkaLoss(model, build(model), DIMENSIONS, WEIGHTS)(
        [model.preprocess(SENTENCES)], labels
    )
    expected = []
    for d in DIMENSIONS:
        cut = SentenceTransformer(modules=[*copy.deepcopy(model), Cut(d)], device="cpu").train()
        torch.manual_seed(0)
        expected.append(build(cut)([cut.preprocess(SENTENCES)], labels))
    if labels is None:
        found, expected = {"loss": found}, [{"loss": value} for value in expected]
    assert len(found) == (1 if labels is None else 3)
    for name, value in found.items():
        total = sum(weight * terms[name] for weight, terms in zip(WEIGHTS, expected))
        torch.testing.assert_close(value, total, rtol=1e-9, atol=0, msg=name)
        assert abs(value / (sum(WEIGHTS) * expected[0][name]) - 1) > 1e-3, name


@pytest.mark.parametrize("build", [RankCSELoss, LSRNSLoss])
def test_teacher_vectors_as_wide_as_the_embedding_stay_whole(single, build):
    teacher = F.normalize(
        torch.randn(6, 32, generator=torch.Generator().manual_seed(4), dtype=torch.float64), dim=1
    )
    loss = MatryoshkaLoss(single, build(single), DIMENSIONS, WEIGHTS)
    features = [single.preprocess(SENTENCES)]
    found = loss(features, teacher)
    # A vector of another size is not cut, and zeros leave its similarities as they are.
    expected = loss(features, F.pad(teacher, (0, 1)))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=0)


def test_an_embedding_that_is_no_sum_of_the_towers_is_refused(twin):
    model = SentenceTransformer(
        modules=[*copy.deepcopy(twin), Dense(32, 16).double()], device="cpu"
    )
    loss = JTCSELoss(model)
    assert loss([model.preprocess(SENTENCES)]).keys() == {"nce", "icnce", "icnce_cross", "ictm"}
    with pytest.raises(
        UserError, match="needs embeddings of the towers' size, 32, found 16; leave out the module"
    ):
        MatryoshkaLoss(model, loss, [8])([model.preprocess(SENTENCES)], None)


def test_what_encode_cuts_is_whole_in_the_loss(twin):
    model = copy.deepcopy(twin)
    whole = JTCSELoss(model, direction="1_to_2")([model.preprocess(SENTENCES)])
    model.truncate_dim = 8
    found = JTCSELoss(model, direction="1_to_2")([model.preprocess(SENTENCES)])
    for name, value in whole.items():
        torch.testing.assert_close(found[name], value)


def test_a_twin_trains_and_its_cut_embeddings_are_those_of_the_saved_model(tower_folders, tmp_path):
    model = make_pipeline(tower_folders)
    loss = MatryoshkaLoss(model, JTCSELoss(model), [32, 8])
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    trainer = SentenceTransformerTrainer(
        model,
        args=training_arguments(tmp_path / "run", max_steps=12),
        train_dataset=Dataset.from_dict({"sentence": make_sentences(32)}),
        loss=loss,
    )
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    for entry in steps:
        assert entry["loss"] == pytest.approx(
            sum(entry[name] for name in ("nce", "icnce", "icnce_cross", "ictm")), rel=1e-3
        )
    assert np.mean([entry["loss"] for entry in steps[-3:]]) < np.mean(
        [entry["loss"] for entry in steps[:3]]
    )
    for tower in ("towers.0", "towers.1"):
        assert any(
            tower in name and not torch.equal(p, before[name])
            for name, p in model.named_parameters()
        )
    to_inference(model).save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    cut = SentenceTransformer(str(tmp_path / "saved"), truncate_dim=8, device="cpu").encode(
        SENTENCES
    )
    assert cut.shape == (6, 8)
    np.testing.assert_allclose(cut, model.encode(SENTENCES)[:, :8], atol=1e-6)


def test_a_student_trains_on_cut_embeddings(tower_folders, tmp_path):
    model = make_model(tower_folders[0])
    rows = {
        "sentence": make_sentences(16),
        "label": F.normalize(torch.randn(16, 8), dim=1).tolist(),
    }
    trainer = SentenceTransformerTrainer(
        model,
        args=training_arguments(tmp_path, max_steps=2),
        train_dataset=Dataset.from_dict(rows),
        loss=MatryoshkaLoss(model, LSRNSLoss(model), [32, 8]),
    )
    trainer.train()
    logged = trainer.state.log_history[0]
    assert {"contrastive", "rank", "smoothing"} < logged.keys() and np.isfinite(logged["loss"])
