"""LoRA by a recipe: trained, checkpointed, resumed, merged and kept as an adapter."""

import json
import shutil

import numpy as np
import pytest
import torch
from conftest import make_sentences
from peft import PeftModel
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from st_jtcse.cli.train import main
from st_jtcse.training.callbacks import TrainingTime

TEXTS = make_sentences(6, seed=9)
SINGLE = {"base": "./a", "pooling": "mean"}
TWIN = {"towers": ["./a", "./b"], "pooling": "cls"}


def write(project, model, loss="SimCSELoss", **lora):
    recipe = {
        "name": "tiny",
        "output_dir": str(project / "run"),
        "data": {"train": "text.txt"},
        "args": {
            "max_steps": 4,
            "per_device_train_batch_size": 8,
            "learning_rate": 1e-2,
            "save_steps": 2,
            "logging_steps": 1,
            "use_cpu": True,
            "disable_tqdm": True,
        },
        "stages": [{"name": "one", "model": {**model, "lora": lora}, "loss": {"type": loss}}],
    }
    (project / "recipe.yaml").write_text(json.dumps(recipe))


def train(project, *options):
    return main([str(project / "recipe.yaml"), *options])


def changed(project, folder="run"):
    """Names of the encoder's weights that training changed."""
    before, after = (
        load_file(project / "a" / "model.safetensors"),
        load_file(project / folder / "one/model.safetensors"),
    )
    assert before.keys() == after.keys()
    return {name for name, weight in after.items() if not torch.equal(weight, before[name])}


@pytest.mark.usefixtures("unrehearsed")
def test_the_saved_model_is_merged_and_the_adapter_gives_the_same(project):
    write(project, SINGLE, r=4, lora_alpha=16, target_modules=["query", "value"])
    assert train(project) == 0
    folder = project / "run" / "one"
    assert changed(project) == {
        f"encoder.layer.{layer}.attention.self.{name}.weight"
        for layer in range(2)
        for name in ("query", "value")
    }
    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    start = SentenceTransformer(str(folder), device="cpu")
    start[0].model.load_state_dict(load_file(project / "a" / "model.safetensors"))
    assert np.abs(start.encode(TEXTS) - expected).max() > 1e-3
    adapted = PeftModel.from_pretrained(start[0].model, str(folder / "adapter"))
    assert {name.split(".")[-3] for name in adapted.state_dict() if "lora_" in name} == {
        "lora_A",
        "lora_B",
    }
    np.testing.assert_allclose(start.encode(TEXTS), expected, atol=1e-5)
    # Nothing of this machine is in what may be shared.
    config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (4, 16, "")
    assert not (folder / "base").exists() and not list(folder.glob("checkpoint-*"))


@pytest.mark.usefixtures("unrehearsed")
def test_the_adapter_loads_by_the_interface_of_sentence_transformers(project):
    write(project, SINGLE, r=4)  # PEFT's own choice of layers.
    assert train(project) == 0
    folder = project / "run" / "one"
    start = SentenceTransformer(str(folder), device="cpu")
    expected = start.encode(TEXTS)
    start[0].model.load_state_dict(load_file(project / "a" / "model.safetensors"))
    start.load_adapter(str(folder / "adapter"))
    np.testing.assert_allclose(start.encode(TEXTS), expected, atol=1e-5)


def test_both_towers_of_a_twin_get_adapters(project):
    write(project, TWIN, "JTCSELoss", r=2)
    assert train(project) == 0
    after = load_file(project / "run" / "one" / "model.safetensors")
    for number, folder in enumerate("ab"):
        before = load_file(project / folder / "model.safetensors")
        moved = {
            name
            for name, weight in before.items()
            if not torch.equal(weight, after[f"towers.{number}.{name}"])
        }
        assert moved == {
            f"encoder.layer.{layer}.attention.self.{name}.weight"
            for layer in range(2)
            for name in ("query", "value")
        }


def cut_off(callback, args, state, control, **kwargs):
    if state.global_step == 3:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("model", "loss"), [(SINGLE, "SimCSELoss"), (TWIN, "JTCSELoss")], ids=["single", "twin"]
)
@pytest.mark.usefixtures("unrehearsed")
def test_a_run_that_was_cut_off_and_moved_goes_on_to_the_same_weights(
    project, monkeypatch, model, loss
):
    write(project, model, loss, r=4)
    assert train(project) == 0
    (project / "run").rename(project / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(TrainingTime, "on_step_end", cut_off)
        assert train(project) != 0
    assert (project / "run" / "one" / "checkpoint-2" / "adapter_config.json").is_file()
    assert not (project / "run" / "one" / "checkpoint-2" / "model.safetensors").exists()
    # What checkpoints are adapters of goes with them.
    shutil.move(project / "run", project / "moved")
    assert train(project, "--output-dir", str(project / "moved"), "--resume") == 0
    for file in ("model.safetensors", "adapter/adapter_model.safetensors"):
        assert (project / "moved/one" / file).read_bytes() == (
            project / "whole/one" / file
        ).read_bytes()


@pytest.mark.parametrize(
    ("lora", "told"),
    [
        (
            {"target_modules": ["query", "valeu"]},
            "expected the name of a layer, found 'valeu'. Did you mean 'value'?",
        ),
        (
            {"target_modules": "q_proj"},
            "expected the name of a layer, found 'q_proj'. Use one of: dense, ",
        ),
        ({"target_modules": "(query"}, "expected a pattern, found '(query' (missing )"),
        (
            {"layers_to_transform": [0], "target_modules": ".*query"},
            "PEFT refuses these arguments: ",
        ),
    ],
)
def test_targets_that_no_layer_has_are_refused(project, capsys, lora, told):
    write(project, SINGLE, **lora)
    assert train(project) == 2
    assert (
        f"lora.target_modules: {told}" in (errors := capsys.readouterr().err)
        or f"lora: {told}" in errors
    )
    assert not (project / "run" / "one").exists()


def test_a_type_whose_layers_peft_does_not_know_needs_their_names(project, capsys):
    write(project, {"base": "stage:sum"})
    recipe = json.loads((project / "recipe.yaml").read_text())
    members = [{"model": "./a", "pooling": "cls"}, {"model": "./b", "pooling": "cls"}]
    recipe["stages"].insert(0, {"name": "sum", "model": {"members": members}, "loss": None})
    (project / "recipe.yaml").write_text(json.dumps(recipe))
    assert train(project) == 2
    told = (
        "lora: PEFT names no usual layers of a ensemble_encoder model; name them, e.g. "
        "'target_modules: all-linear'."
    )
    assert told in capsys.readouterr().err
