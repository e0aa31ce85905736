"""The modules under SentenceTransformerTrainer: checkpoints, the best of them, and resuming."""

import pytest
import torch
from conftest import make_pipeline, make_sentences, training_arguments
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from st_jtcse.losses import JTCSELoss

TRAIN = Dataset.from_dict({"sentence": make_sentences(64)})
PAIRS = make_sentences(40, seed=5)


def evaluator():
    return EmbeddingSimilarityEvaluator(
        PAIRS[:20],
        PAIRS[20:],
        [float(len(set(a.split()) & set(b.split()))) for a, b in zip(PAIRS[:20], PAIRS[20:])],
        name="dev",
        main_similarity="cosine",
        similarity_fn_names=["cosine"],
        write_csv=False,
    )


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


def trainer_for(model, folder, **changes):
    arguments = training_arguments(folder, save_strategy="steps", save_steps=2, **changes)
    return SentenceTransformerTrainer(model, arguments, train_dataset=TRAIN, loss=JTCSELoss(model))


def test_training_moves_every_tower_and_logs_every_term(tower_folders, tmp_path):
    model = make_pipeline(tower_folders)
    before = weights(model)
    trainer = trainer_for(model, tmp_path)
    trainer.train()
    for key in (
        "0.model.towers.0.encoder.layer.0.attention.self.query.weight",
        "0.model.towers.1.pooler.dense.weight",
    ):
        assert not torch.equal(before[key], model.state_dict()[key])
    first, last = trainer.state.log_history[0], trainer.state.log_history[-2]
    assert {"nce", "icnce", "icnce_cross", "ictm"} <= first.keys()
    terms = sum(float(first[key]) for key in ("nce", "icnce", "icnce_cross", "ictm"))
    assert float(first["loss"]) == pytest.approx(terms, rel=1e-3)
    assert float(last["loss"]) < float(first["loss"])


def test_resuming_equals_the_uninterrupted_run(tower_folders, tmp_path):
    straight = make_pipeline(tower_folders)
    trainer_for(straight, tmp_path / "straight").train()
    resumed = make_pipeline(tower_folders, seed=99)
    trainer_for(resumed, tmp_path / "resumed").train(
        resume_from_checkpoint=str(tmp_path / "straight" / "checkpoint-4")
    )
    assert_equal(weights(straight), weights(resumed))


def test_the_best_checkpoint_is_loaded_at_the_end(tower_folders, tmp_path):
    model = make_pipeline(tower_folders)
    arguments = training_arguments(
        tmp_path,
        learning_rate=1e-2,  # far too high: later checkpoints differ from the best one
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_dev_spearman_cosine",
        greater_is_better=True,
    )
    trainer = SentenceTransformerTrainer(
        model, arguments, train_dataset=TRAIN, loss=JTCSELoss(model), evaluator=evaluator()
    )
    trainer.train()
    scores = [
        entry["eval_dev_spearman_cosine"]
        for entry in trainer.state.log_history
        if "eval_runtime" in entry
    ]
    assert len(set(scores)) == 3
    assert evaluator()(model)["dev_spearman_cosine"] == pytest.approx(max(scores), abs=1e-6)
    # The checkpoint is a pipeline of this package's modules: a script reads it back for more
    # training.
    again = SentenceTransformer(
        trainer.state.best_model_checkpoint, trust_remote_code=True, device="cpu"
    )
    assert_equal(weights(model), weights(again))
    assert set(again(again.preprocess(PAIRS[:2]) | {"tower_outputs": True})) >= {
        "tower_embedding",
        "tower_pooler",
    }
