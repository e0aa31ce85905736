"""Models saved by earlier versions give what they gave then; tests/assets/README.md says how they
were made.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer
from test_loading import WITHOUT_PLUGIN, results_of

ASSETS = Path(__file__).parents[1] / "assets"
VERSIONS = sorted(path.name for path in ASSETS.iterdir() if path.is_dir())
FLAG_NEEDED = {"multi_tokenizer_ensemble", "attention_pooling", "twin_in_training"}


def told(version):
    return json.loads((ASSETS / version / "embeddings.json").read_text())


CASES = [(version, family) for version in VERSIONS for family in told(version)["found"]]


@pytest.mark.parametrize(("version", "family"), CASES)
def test_a_saved_model_gives_what_it_gave(version, family):
    folder, sentences = str(ASSETS / version / family), told(version)["sentences"]
    if family == "cross_encoder":
        found = CrossEncoder(folder, device="cpu").predict(
            [(sentences[0], other) for other in sentences]
        )
    else:
        model = SentenceTransformer(folder, device="cpu", trust_remote_code=family in FLAG_NEEDED)
        found = model.encode(sentences)
    assert np.abs(found - np.array(told(version)["found"][family])).max() <= 1e-6


@pytest.mark.parametrize("version", VERSIONS)
def test_the_modelling_files_saved_then_load_without_the_package(version, tmp_path):
    folders = [ASSETS / version / family for family in ("twin", "ensemble_encoder")]
    results_of(WITHOUT_PLUGIN.format(sentences=told(version)["sentences"]), folders, tmp_path)
    for folder in folders:
        found = np.load(tmp_path / f"{folder.name}.npy")
        assert np.abs(found - np.array(told(version)["found"][folder.name])).max() <= 1e-6
