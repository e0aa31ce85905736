"""Sentence-Transformers' merge of twins: right, or refused."""

import numpy as np
import pytest
import torch
from conftest import make_model, make_pipeline, make_sentences, save_encoder, training_arguments
from datasets import Dataset
from peft import LoraConfig
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from transformers import AutoModel

from st_jtcse.losses import JTCSELoss
from st_jtcse.modules import ensemble_of, save_for_inference, to_inference

SENTENCES = make_sentences(6)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The towers of two twins."""
    root = tmp_path_factory.mktemp("merge")
    return [save_encoder(root / f"encoder_{seed}", seed) for seed in (1, 2, 3, 4)]


def by_hand(folders, weights):
    """A twin whose towers are the weighted means of the plain encoders' weights."""
    encoders = [AutoModel.from_pretrained(folder) for folder in folders]
    for tower, other in zip(encoders[:2], encoders[2:]):
        theirs = other.state_dict()
        with torch.no_grad():
            for name, parameter in tower.named_parameters():
                parameter.copy_(weights[0] * parameter + weights[1] * theirs[name])
    states = []
    for tower in encoders[:2]:
        batch = make_model(folders[0])[0].tokenizer(SENTENCES, padding=True, return_tensors="pt")
        with torch.no_grad():
            states.append(tower(**batch).last_hidden_state[:, 0])
    return (states[0] + states[1]).numpy()


@pytest.mark.parametrize("form", ["training", "inference"])
def test_two_twins_merge_tower_by_tower(folders, form, tmp_path):
    twins = [make_pipeline(folders[:2]), make_pipeline(folders[2:])]
    if form == "inference":
        twins = [to_inference(twin) for twin in twins]
    merged = SentenceTransformer.merge(twins, parameters={"weight": [0.25, 0.75]})
    expected = by_hand(folders, (0.25, 0.75))
    np.testing.assert_allclose(merged.encode(SENTENCES), expected, atol=1e-5)
    for twin in twins:
        assert np.abs(twin.encode(SENTENCES) - expected).max() > 0.1
    save_for_inference(merged, tmp_path)
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_allclose(loaded.encode(SENTENCES), expected, atol=1e-5)


def test_saved_twins_merge_on_the_sphere_too(folders, tmp_path):
    for number, towers in enumerate((folders[:2], folders[2:])):
        save_for_inference(make_pipeline(towers), tmp_path / str(number))
    merged = SentenceTransformer.merge(
        [str(tmp_path / "0"), str(tmp_path / "1")], method="slerp", parameters={"t": 0.25}
    )
    name = "towers.1.encoder.layer.2.output.dense.weight"
    p, q, found = (
        model[0].model.get_parameter(name).detach().double().flatten()
        for model in (make_pipeline(folders[:2]), make_pipeline(folders[2:]), merged)
    )
    angle = torch.arccos(p @ q / (p.norm() * q.norm()))
    expected = (torch.sin(0.75 * angle) * p + torch.sin(0.25 * angle) * q) / torch.sin(angle)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_a_merged_twin_trains_on_with_its_own_poolers(folders, tmp_path):
    merged = SentenceTransformer.merge([make_pipeline(folders[:2]), make_pipeline(folders[2:])])
    towers = merged[0].model.towers
    before = [tower.pooler.dense.weight.clone() for tower in towers]
    trainer = SentenceTransformerTrainer(
        merged,
        args=training_arguments(tmp_path, max_steps=2),
        train_dataset=Dataset.from_dict({"sentence": make_sentences(16)}),
        # Of this loss the modulus term alone reaches the poolers.
        loss=JTCSELoss(merged),
    )
    trainer.train()
    for tower, weight in zip(towers, before):
        assert not torch.equal(tower.pooler.dense.weight, weight)


def test_two_ensembles_merge_member_by_member(folders):
    merged = SentenceTransformer.merge(
        [ensemble_of(folders[:2], pooling="cls"), ensemble_of(folders[2:], pooling="cls")]
    )
    np.testing.assert_allclose(merged.encode(SENTENCES), by_hand(folders, (0.5, 0.5)), atol=1e-5)


def with_adapter(model):
    model.add_adapter(LoraConfig(r=2, target_modules=["query"]))
    return model


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda folders: make_model(folders[2]), "Model 1 has a different module structure"),
        (
            lambda folders: to_inference(make_pipeline(folders[2:])),
            "Model 1 has a different module structure",
        ),
        (
            lambda folders: make_pipeline(folders[2:], every=4),
            "Transformer '0.model' has a different configuration",
        ),
        (
            lambda folders: make_pipeline(folders[2:], every=None),
            "Transformer '0.model' has a different configuration",
        ),
        (
            lambda folders: with_adapter(make_pipeline(folders[2:])),
            "PEFT adapters is not supported",
        ),
    ],
    ids=["one encoder", "the saved form", "another k", "no cross-attention", "adapters"],
)
def test_what_does_not_match_a_twin_is_refused(folders, other, message):
    with pytest.raises(ValueError, match=message):
        SentenceTransformer.merge([make_pipeline(folders[:2]), other(folders)])


def test_ensembles_of_other_weights_are_refused(folders):
    with pytest.raises(ValueError, match="different configuration"):
        SentenceTransformer.merge(
            [
                ensemble_of(folders[:2], [0.3, 0.7], pooling="cls"),
                ensemble_of(folders[2:], pooling="cls"),
            ]
        )
