"""LoRA on both towers of a twin, by Sentence-Transformers' own interface."""

import copy
import json
import logging

import numpy as np
import pytest
import torch
from conftest import make_pipeline, make_sentences, training_arguments
from datasets import Dataset
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.modules import Pooling

from st_jtcse.losses import JTCSELoss
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder, save_for_inference

SENTENCES = make_sentences(6)
TARGETS = ["query", "key", "value", "dense"]


def trainable(twin_folder):
    encoder = TwinCrossAttentionEncoder(str(twin_folder))
    return SentenceTransformer(
        modules=[encoder, PoolerModulusHead(), Pooling(32, "cls")], device="cpu"
    )


def train(model, folder, **changes):
    trainer = SentenceTransformerTrainer(
        model,
        args=training_arguments(folder, **{"max_steps": 10, "learning_rate": 1e-2, **changes}),
        train_dataset=Dataset.from_dict({"sentence": make_sentences(64)}),
        loss=JTCSELoss(model),
    )
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def merged(twin_folder, adapter_folder):
    """The twin with the adapter added into its weights."""
    model = trainable(twin_folder)
    model[0].model = PeftModel.from_pretrained(
        model[0].model, str(adapter_folder)
    ).merge_and_unload()
    return model


@pytest.fixture(scope="module")
def twin_folder(tower_folders, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lora") / "twin"
    save_for_inference(make_pipeline(tower_folders), folder)
    return folder


@pytest.fixture(scope="module")
def trained(twin_folder, tmp_path_factory):
    """A model with a trained adapter, its weights before and its losses."""
    folder = tmp_path_factory.mktemp("lora")
    model = trainable(twin_folder)
    torch.manual_seed(0)
    model.add_adapter(LoraConfig(r=4, target_modules=TARGETS))
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    losses = train(model, folder / "run")
    save_for_inference(model, folder / "adapter")
    return model, before, losses, folder


def test_adapters_of_both_towers_train_and_the_twin_stays(trained):
    model, before, losses, _ = trained
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    moved = {
        name
        for name, parameter in model.named_parameters()
        if not torch.equal(parameter, before[name])
    }
    adapters = {name for name in before if "lora_" in name}
    # Query, key, value and three further projections of four layers, and the pooler, with two
    # factors each.
    assert len(adapters) == 2 * (4 * 6 + 1) * 2
    assert moved == adapters


def test_both_streams_and_the_poolers_are_those_of_the_merged_twin(trained, twin_folder):
    model, _, _, folder = trained
    plain, whole = trainable(twin_folder), merged(twin_folder, folder / "adapter")
    features = {**model.preprocess(SENTENCES), "tower_outputs": True}
    with torch.no_grad():
        found, expected, without = (each.eval()(dict(features)) for each in (model, whole, plain))
    for name in ("tower_embedding", "cross_embedding", "tower_pooler"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-5, msg=name)
        # In either tower the adapter makes a difference.
        assert (found[name] - without[name]).abs().amax(dim=(0, 2)).min() > 1e-2, name


def test_the_cross_stream_alone_trains_the_adapters_of_both_towers(trained):
    model = copy.deepcopy(trained[0]).train()
    model.zero_grad()
    loss = JTCSELoss(model, nce_weight=0, icnce_weight=0, ictm_weight=0)
    loss.length_chunks = 1
    loss([model.preprocess(SENTENCES)])["icnce_cross"].backward()
    for tower in model[0].model.towers:
        for layer in tower.encoder.layer:
            for name in ("query", "key", "value"):
                gradient = getattr(layer.attention.self, name).lora_B["default"].weight.grad
                assert gradient.abs().max() > 0, name


def test_saved_it_is_the_adapter_alone_and_loads_with_equal_embeddings(trained, twin_folder):
    model, _, _, folder = trained
    assert all(
        "lora_" in name for name in load_file(folder / "adapter" / "adapter_model.safetensors")
    )
    assert not (folder / "adapter" / "model.safetensors").exists()
    expected = model.encode(SENTENCES)
    assert np.abs(expected - trainable(twin_folder).encode(SENTENCES)).max() > 0.1
    loaded = SentenceTransformer(str(folder / "adapter"), device="cpu")
    np.testing.assert_allclose(loaded.encode(SENTENCES), expected, atol=1e-5)
    onto = SentenceTransformer(str(twin_folder), device="cpu")
    onto.load_adapter(str(folder / "adapter"))
    np.testing.assert_allclose(onto.encode(SENTENCES), expected, atol=1e-5)


def test_merged_and_saved_it_is_an_ordinary_twin_with_equal_embeddings(
    trained, twin_folder, tmp_path
):
    model, _, _, folder = trained
    save_for_inference(merged(twin_folder, folder / "adapter"), tmp_path)
    assert not list(tmp_path.glob("adapter*"))
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    assert not any("lora_" in name for name, _ in loaded.named_parameters())
    np.testing.assert_allclose(loaded.encode(SENTENCES), model.encode(SENTENCES), atol=1e-5)


def test_a_resumed_run_goes_on_with_the_adapter(twin_folder, tmp_path):
    embeddings = []
    for steps in ((6,), (3, 6)):
        folder = tmp_path / str(len(steps))
        for number, last in enumerate(steps):
            model = trainable(twin_folder)
            torch.manual_seed(0)
            model.add_adapter(LoraConfig(r=4, target_modules=TARGETS))
            arguments = dict(max_steps=last, lr_scheduler_type="constant", save_steps=3)
            trainer = SentenceTransformerTrainer(
                model,
                args=training_arguments(folder, **arguments),
                train_dataset=Dataset.from_dict({"sentence": make_sentences(64)}),
                loss=JTCSELoss(model),
            )
            trainer.train(resume_from_checkpoint=str(folder / "checkpoint-3") if number else None)
        embeddings.append(model.encode(SENTENCES))
    np.testing.assert_allclose(embeddings[1], embeddings[0], atol=1e-5)


def test_an_adapter_on_a_twin_that_was_never_saved_says_how_it_loads(
    tower_folders, twin_folder, tmp_path, caplog
):
    model = make_pipeline(tower_folders)
    model.add_adapter(LoraConfig(r=4, target_modules=TARGETS, init_lora_weights=False))
    with caplog.at_level(logging.WARNING, logger="st_jtcse"):
        save_for_inference(model, tmp_path)
    assert "names no base" in caplog.text and "load_adapter on the saved twin" in caplog.text
    assert (
        json.loads((tmp_path / "adapter_config.json").read_text())["base_model_name_or_path"] == ""
    )
    onto = SentenceTransformer(str(twin_folder), device="cpu")
    onto.load_adapter(str(tmp_path))
    np.testing.assert_allclose(onto.encode(SENTENCES), model.encode(SENTENCES), atol=1e-5)
