"""Saved twins and ensembles in the three situations a reader can be in, with and without the
package.
"""

import json

import numpy as np
import pytest
import torch
from conftest import make_pipeline, make_sentences, make_tokenizer, make_tower
from processes import run_code
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from transformers import AutoModel, AutoTokenizer

from st_jtcse.modules import (
    TwinCrossAttentionEncoder,
    ensemble_of,
    save_for_inference,
    to_inference,
)
from st_jtcse.modules.joining import transformer_of
from st_jtcse.modules.loading import pooling_of
from st_jtcse.towers.modeling_twin_encoder import CROSSING_TYPES

SENTENCES = make_sentences(12)
# Every type of tower (a BERT twin is in each test anyway), and between them every pooling.
KINDS = {
    "roberta": {"pooling": "pooler"},
    "xlm-roberta": {"pooling": "mean", "normalize": True},
    "camembert": {},
    "electra": {"pooling": "first_last"},
    "mpnet": {"pooling": "mean"},
    "distilbert": {"pooling": "cls"},
    "modernbert": {"pooling": "mean", "normalize": True},
    "albert": {"pooling": "mean"},
    "qwen3": {"pooling": "lasttoken", "normalize": True},
}

# Folders come as pairs: a model's, and where its embeddings are to be left.
WITH_PLUGIN = """
import sys, numpy, st_jtcse
from sentence_transformers import SentenceTransformer
for folder, result in zip(sys.argv[1::2], sys.argv[2::2]):
    numpy.save(result, SentenceTransformer(folder, device="cpu").encode({sentences!r}))
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
for folder, result in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        SentenceTransformer(folder, device="cpu")
    except Exception as error:
        with open(result + ".refusal", "w") as file:
            file.write(str(error))
    model = SentenceTransformer(folder, device="cpu", trust_remote_code=True)
    assert "st_jtcse" not in sys.modules
    numpy.save(result, model.encode({sentences!r}))
"""


@pytest.fixture(scope="module")
def saved_models(tower_folders, tmp_path_factory):
    """Folders of saved models, with the weighted sums of h_I and h_II computed by the two plain
    encoders.
    """
    folder = tmp_path_factory.mktemp("saved")
    for kind, form in KINDS.items():
        towers = [make_tower(kind, seed) for seed in (1, 2)]
        crossing = 2 if kind in CROSSING_TYPES else None
        encoder = TwinCrossAttentionEncoder.from_towers(
            *towers, crossing, **form, tokenizer=make_tokenizer()
        )
        save_for_inference(
            SentenceTransformer(modules=[encoder, Pooling(32, "cls")]), folder / f"twin_of_{kind}"
        )
    save_for_inference(make_pipeline(tower_folders), folder / "twin")
    save_for_inference(ensemble_of(tower_folders, (0.3, 0.7), pooling="cls"), folder / "ensemble")
    tokenizer = AutoTokenizer.from_pretrained(tower_folders[0])
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        first, second = (
            AutoModel.from_pretrained(tower)(**batch).last_hidden_state[:, 0]
            for tower in tower_folders
        )
    kinds = {
        folder / f"twin_of_{kind}": sum(embeddings_of(kind, seed, **form) for seed in (1, 2))
        for kind, form in KINDS.items()
    }
    sums = {
        folder / "twin": (first + second).numpy(),
        folder / "ensemble": (0.3 * first + 0.7 * second).numpy(),
    }
    return sums | kinds


def embeddings_of(kind, seed, pooling="cls", normalize=False):
    """What the plain tower embeds by Sentence-Transformers' own modules."""
    encoder = transformer_of(Transformer, make_tower(kind, seed), make_tokenizer())
    if pooling == "pooler":
        batch = encoder.tokenizer(SENTENCES, padding=True, return_tensors="pt")
        with torch.no_grad():
            return encoder.model(**batch).pooler_output.numpy()
    modules = [encoder, *pooling_of(encoder, pooling), *([Normalize()] if normalize else [])]
    return SentenceTransformer(modules=modules, device="cpu").encode(SENTENCES)


@pytest.fixture(params=["twin", "ensemble"])
def saved(request, saved_models):
    """The folder of a saved model, and its expected embeddings."""
    return next(
        (folder, expected)
        for folder, expected in saved_models.items()
        if folder.name == request.param
    )


def results_of(script, saved_models, place):
    """Load every saved model in one process, and return the folder of what came out."""
    pairs = [
        path for folder in saved_models for path in (str(folder), str(place / f"{folder.name}.npy"))
    ]
    run_code(
        script.format(sentences=SENTENCES),
        *pairs,
        folder=place,
        HF_MODULES_CACHE=str(place / "modules"),
    )
    return place


@pytest.fixture(scope="module")
def with_plugin(saved_models, tmp_path_factory):
    return results_of(WITH_PLUGIN, saved_models, tmp_path_factory.mktemp("with"))


@pytest.fixture(scope="module")
def without_plugin(saved_models, tmp_path_factory):
    return results_of(WITHOUT_PLUGIN, saved_models, tmp_path_factory.mktemp("without"))


def test_with_the_package_no_flag_is_needed(saved, with_plugin):
    assert np.abs(np.load(with_plugin / f"{saved[0].name}.npy") - saved[1]).max() < 1e-6


def test_without_the_package_the_flag_loads_the_stored_file(saved, without_plugin):
    assert np.abs(np.load(without_plugin / f"{saved[0].name}.npy") - saved[1]).max() < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_twins_of_every_type_load_in_the_three_situations(
    kind, saved_models, with_plugin, without_plugin
):
    expected = next(
        expected for folder, expected in saved_models.items() if folder.name == f"twin_of_{kind}"
    )
    for results in (with_plugin, without_plugin):
        assert (
            np.abs(np.load(results / f"twin_of_{kind}.npy") - expected).max()
            < 1e-6 * np.abs(expected).max()
        )
    assert "trust_remote_code=True" in (without_plugin / f"twin_of_{kind}.npy.refusal").read_text()


def test_without_the_package_and_flag_the_message_names_the_flag(saved, without_plugin):
    assert "trust_remote_code=True" in (without_plugin / f"{saved[0].name}.npy.refusal").read_text()


def test_the_saved_folder_names_only_modules_of_sentence_transformers(saved):
    modules = json.loads((saved[0] / "modules.json").read_text())
    assert [entry["type"] for entry in modules] == [
        "sentence_transformers.base.modules.transformer.Transformer",
        "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    ]
    files = {
        path.relative_to(saved[0]).as_posix() for path in saved[0].rglob("*") if path.is_file()
    }
    assert "model.safetensors" in files and f"modeling_{saved[0].name}_encoder.py" in files
    assert not any(
        "PoolerModulusHead" in name or name.endswith((".bin", ".pt", ".pkl")) for name in files
    )


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
    alone, original = (
        AutoModel.from_pretrained(path) for path in (tmp_path / "tower", tower_folders[1])
    )
    for name, value in original.state_dict().items():
        assert torch.equal(alone.state_dict()[name], value), name
