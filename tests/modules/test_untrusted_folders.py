"""No folder's code runs unless the user says so, whatever else the folder holds."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from conftest import make_model, make_sentences
from sentence_transformers import SentenceTransformer

from st_jtcse.errors import CodeNotTrusted, UserError
from st_jtcse.modules import (
    AttentionPooling,
    MultiTokenizerEnsemble,
    TwinCrossAttentionEncoder,
    load_sentence_transformer,
    save_for_inference,
)
from st_jtcse.papers.data.frozen_generator import FrozenGenerator

EVIL = "import pathlib\npathlib.Path({!r}).touch()\n"
TEXTS = make_sentences(4)


@pytest.fixture
def pooled(tower_folders, tmp_path):
    """A saved model with a class of this package, which Sentence-Transformers takes with the flag
    only.
    """
    model = make_model(tower_folders[0])
    model = SentenceTransformer(
        modules=[model[0], AttentionPooling(32)], device="cpu", prompts={"query": "the "}
    )
    save_for_inference(model, tmp_path / "model")
    return model, tmp_path / "model"


def test_our_own_classes_are_built_without_trust_in_their_folder(pooled):
    model, folder = pooled
    loaded = load_sentence_transformer(folder, device="cpu")
    np.testing.assert_array_equal(loaded.encode(TEXTS), model.encode(TEXTS))
    assert loaded.prompts["query"] == "the " and loaded.max_seq_length == model.max_seq_length


def test_an_ensemble_of_such_models_too(pooled, tmp_path):
    ensemble = SentenceTransformer(
        modules=[MultiTokenizerEnsemble([pooled[0], pooled[0]], [0.25, 0.5])], device="cpu"
    )
    save_for_inference(ensemble, tmp_path / "ensemble")
    loaded = load_sentence_transformer(tmp_path / "ensemble", device="cpu")
    np.testing.assert_allclose(loaded.encode(TEXTS), ensemble.encode(TEXTS), atol=1e-6)


def test_a_foreign_class_beside_ours_does_not_run(pooled, tmp_path, monkeypatch):
    _, folder = pooled
    monkeypatch.syspath_prepend(str(folder))
    (folder / "evilmod.py").write_text(EVIL.format(str(tmp_path / "ran")))
    listing = json.loads((folder / "modules.json").read_text())
    shutil.copytree(folder / listing[1]["path"], folder / "2_Evil")
    (folder / "modules.json").write_text(
        json.dumps([*listing, {"idx": 2, "name": "2", "path": "2_Evil", "type": "evilmod.E"}])
    )
    with pytest.raises(
        CodeNotTrusted, match=r"needs the class evilmod\.E, whose code runs only if you allow it"
    ):
        load_sentence_transformer(folder, device="cpu")
    assert not (tmp_path / "ran").exists()


def test_code_named_in_a_configuration_does_not_run(pooled, tmp_path):
    _, folder = pooled
    (folder / "evilmod.py").write_text(EVIL.format(str(tmp_path / "ran")))
    for name, key in (("config.json", "AutoModel"), ("tokenizer_config.json", "AutoTokenizer")):
        settings = json.loads((folder / name).read_text())
        value = "evilmod.E" if key == "AutoModel" else ["evilmod.E", "evilmod.E"]
        settings |= {"auto_map": {key: value, "AutoConfig": "evilmod.C"}, "model_type": "evil"}
        (folder / name).write_text(json.dumps(settings))
    with pytest.raises(CodeNotTrusted, match="it comes with code, which runs only if you allow it"):
        load_sentence_transformer(folder, device="cpu")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("take", ["towers", "members"])
def test_joining_asks_nobody_on_the_terminal(tower_folders, tmp_path, monkeypatch, take):
    folder = shutil.copytree(tower_folders[0], tmp_path / "code")
    (folder / "evilmod.py").write_text(EVIL.format(str(tmp_path / "ran")))
    settings = json.loads((folder / "config.json").read_text())
    settings |= {
        "auto_map": {"AutoConfig": "evilmod.C", "AutoModel": "evilmod.E"},
        "model_type": "evil",
    }
    (folder / "config.json").write_text(json.dumps(settings))
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("asked on the terminal"))
    with pytest.raises(CodeNotTrusted):
        if take == "towers":
            TwinCrossAttentionEncoder.from_towers(tower_folders[1], folder)
        else:
            load_sentence_transformer(folder, pooling="cls")
    assert not (tmp_path / "ran").exists()


def test_a_text_model_with_code_in_its_folder_is_refused_unasked(tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("asked on the terminal"))
    folder = tmp_path / "judge"
    folder.mkdir()
    (folder / "evil.py").write_text(EVIL.format(str(tmp_path / "ran")))
    settings = {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"},
    }
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match="cannot be loaded as a text-generation model"):
        FrozenGenerator(str(folder), translates=False, batch_size=1, bf16=False)
    assert not (tmp_path / "ran").exists()


class Evil:
    """A pickle that makes a folder as it is read."""

    def __init__(self, place):
        self.place = str(place)

    def __reduce__(self):
        return os.mkdir, (self.place,)


@pytest.mark.parametrize("dtype", ["float32", None])
def test_pickled_weights_do_not_run_whatever_the_folder_asks_for(model_folders, tmp_path, dtype):
    folder = shutil.copytree(model_folders[0], tmp_path / "pickled")
    (folder / "model.safetensors").unlink()
    torch.save({"a": Evil(tmp_path / "ran")}, folder / "pytorch_model.bin")
    # Without a type, transformers looks for one in the weights, before it loads them.
    settings = json.loads((folder / "config.json").read_text()) | {"dtype": dtype}
    (folder / "config.json").write_text(json.dumps(settings))
    asked = {"model_kwargs": {"weights_only": False, "use_safetensors": False}}
    (folder / "sentence_bert_config.json").write_text(json.dumps(asked))
    with pytest.raises(UserError, match="pickled weights are damaged, or more than weights"):
        load_sentence_transformer(folder, device="cpu")
    assert not (tmp_path / "ran").exists()


def test_a_folder_does_not_say_where_weights_are_written(model_folders, tmp_path):
    folder = shutil.copytree(model_folders[0], tmp_path / "writes")
    asked = {"offload_folder": str(tmp_path / "written"), "device_map": {"": "disk"}}
    (folder / "sentence_bert_config.json").write_text(json.dumps({"model_kwargs": asked}))
    with pytest.raises(UserError, match="says where weights are to be written"):
        load_sentence_transformer(folder, device="cpu")
    assert not (tmp_path / "written").exists()
