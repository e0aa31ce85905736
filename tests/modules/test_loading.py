"""Saved twins and ensembles in the three situations a reader can be in, each in a process of its own."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import make_pipeline, make_sentences
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from st_jtcse.modules import ensemble_of, save_for_inference, to_inference

SENTENCES = make_sentences(12)

WITH_PLUGIN = """
import sys, numpy, st_jtcse
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
numpy.save(sys.argv[2], model.encode({sentences!r}))
"""
WITHOUT_PLUGIN = """
import importlib.util, sys
class Absent:  # as on a machine where the package is not installed
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "st_jtcse":
            raise ModuleNotFoundError("No module named 'st_jtcse'", name="st_jtcse")
sys.meta_path.insert(0, Absent())
import numpy
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu"{flag})
assert "st_jtcse" not in sys.modules
numpy.save(sys.argv[2], model.encode({sentences!r}))
"""


def run(script, folder, result, tmp_path):
    environment = {
        **os.environ,
        "PYTHONSAFEPATH": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_MODULES_CACHE": str(tmp_path / "modules"),
    }
    command = [sys.executable, "-c", script, str(folder), str(result)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path)


@pytest.fixture(scope="module", params=["twin", "ensemble"])
def saved(request, tower_folders, tmp_path_factory):
    """The folder of a saved model, and the weighted sum of h_I and h_II computed by the two plain encoders."""
    folder = tmp_path_factory.mktemp("saved") / request.param
    is_twin = request.param == "twin"
    weights = (1.0, 1.0) if is_twin else (0.3, 0.7)
    save_for_inference(
        make_pipeline(tower_folders) if is_twin else ensemble_of(tower_folders, weights, pooling="cls"), folder
    )
    tokenizer = AutoTokenizer.from_pretrained(tower_folders[0])
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = [AutoModel.from_pretrained(tower)(**batch).last_hidden_state[:, 0] for tower in tower_folders]
    return folder, sum(weight * state for weight, state in zip(weights, states)).numpy()


def test_with_the_package_no_flag_is_needed(saved, tmp_path):
    result = run(WITH_PLUGIN.format(sentences=SENTENCES), saved[0], tmp_path / "e.npy", tmp_path)
    assert result.returncode == 0, result.stderr
    assert np.abs(np.load(tmp_path / "e.npy") - saved[1]).max() < 1e-6


def test_without_the_package_the_flag_loads_the_stored_file(saved, tmp_path):
    script = WITHOUT_PLUGIN.format(sentences=SENTENCES, flag=", trust_remote_code=True")
    result = run(script, saved[0], tmp_path / "e.npy", tmp_path)
    assert result.returncode == 0, result.stderr
    assert np.abs(np.load(tmp_path / "e.npy") - saved[1]).max() < 1e-6


def test_without_the_package_and_flag_the_message_names_the_flag(saved, tmp_path):
    result = run(WITHOUT_PLUGIN.format(sentences=SENTENCES, flag=""), saved[0], tmp_path / "e.npy", tmp_path)
    assert result.returncode != 0
    assert "trust_remote_code=True" in result.stderr
    assert not (tmp_path / "e.npy").exists()


def test_the_saved_folder_names_only_modules_of_sentence_transformers(saved):
    modules = json.loads((saved[0] / "modules.json").read_text())
    assert [entry["type"] for entry in modules] == [
        "sentence_transformers.base.modules.transformer.Transformer",
        "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    ]
    files = {path.relative_to(saved[0]).as_posix() for path in saved[0].rglob("*") if path.is_file()}
    assert "model.safetensors" in files and f"modeling_{saved[0].name}_encoder.py" in files
    assert not any("PoolerModulusHead" in name or name.endswith((".bin", ".pt", ".pkl")) for name in files)


def test_the_card_says_how_the_model_loads_once_and_keeps_it(saved, tmp_path):
    text = (saved[0] / "README.md").read_text()
    assert text.count("`import st_jtcse`") == text.count("trust_remote_code=True") == 1
    save_for_inference(SentenceTransformer(str(saved[0]), device="cpu"), tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text() == text


def test_to_inference_keeps_embeddings_and_poolers(tower_folders, tmp_path):
    model = make_pipeline(tower_folders)
    plain = to_inference(model)
    assert np.array_equal(plain.encode(SENTENCES), model.encode(SENTENCES))
    assert [type(module).__name__ for module in plain] == ["Transformer", "Pooling"]
    pooler = "towers.1.pooler.dense.weight"
    assert torch.equal(plain[0].model.state_dict()[pooler], model[0].model.state_dict()[pooler])
    plain.save_pretrained(str(tmp_path / "again"))
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu")
    assert np.array_equal(again.encode(SENTENCES), plain.encode(SENTENCES))


def test_one_tower_alone_is_a_plain_encoder(tower_folders, tmp_path):
    twin = make_pipeline(tower_folders)[0].model
    twin.to_towers()[1].save_pretrained(tmp_path / "tower")
    alone, original = (AutoModel.from_pretrained(path) for path in (tmp_path / "tower", tower_folders[1]))
    for name, value in original.state_dict().items():
        assert torch.equal(alone.state_dict()[name], value), name
