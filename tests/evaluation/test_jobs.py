"""What is loaded for evaluation, what is refused, and when two models are one."""

import json
import shutil

import pytest
import torch
from conftest import make_model, save_encoder

from st_jtcse.errors import PoolingNeeded, UserError
from st_jtcse.evaluation.given_models import load_model
from st_jtcse.hashing import embedding_sha256
from st_jtcse.modules.twin_encoder import join_towers

pytestmark = pytest.mark.usefixtures("offline")


def test_a_copy_is_the_same_model(model_folders, tmp_path):
    copy = shutil.copytree(model_folders[0], tmp_path / "renamed")
    loaded = load_model(str(model_folders[0]))
    assert load_model(str(copy)).sha256 == loaded.sha256
    loaded.model.encode(["one dog", "a longer sentence about the red house"])
    assert embedding_sha256(loaded.model) == loaded.sha256


def test_weights_pooling_length_and_prompts_make_another_model(model_folders, tower_folders):
    one = load_model(str(model_folders[0])).sha256
    assert load_model(str(model_folders[1])).sha256 != one
    assert load_model(str(tower_folders[0]), pooling="cls").sha256 == one
    assert load_model(str(tower_folders[0]), pooling="mean").sha256 != one
    shorter, prompted = make_model(tower_folders[0]), make_model(tower_folders[0])
    shorter.max_seq_length = 8
    prompted.prompts["query"] = "one "
    assert len({one, embedding_sha256(shorter), embedding_sha256(prompted)}) == 3


def test_a_tokenizer_makes_another_model(tower_folders, tmp_path):
    other = save_encoder(tmp_path / "other", 1, words=[f"word{number}" for number in range(30)])
    shutil.copy(tower_folders[0] / "model.safetensors", other)
    shutil.copy(tower_folders[0] / "config.json", other)
    one, two = make_model(tower_folders[0]), make_model(other)
    assert all(
        torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values())
    )
    assert embedding_sha256(one) != embedding_sha256(two)


def test_a_plain_encoder_needs_its_pooling_said(tower_folders):
    with pytest.raises(
        PoolingNeeded, match="plain encoder, and nothing says how its tokens make an embedding"
    ):
        load_model(str(tower_folders[0]))
    loaded = load_model(str(tower_folders[0]), pooling="cls").model
    expected = make_model(tower_folders[0]).encode(["one dog"])
    assert (loaded.encode(["one dog"]) == expected).all()


def test_pooling_replaces_the_model_s_own_modules(model_folders):
    loaded = load_model(str(model_folders[0]), pooling="mean").model
    assert loaded[1].get_config_dict()["pooling_mode"] == "mean"


def test_a_saved_twin_is_loaded_without_a_flag(tower_folders, tmp_path):
    join_towers(*tower_folders, tmp_path / "twin")
    loaded = load_model(str(tmp_path / "twin"))
    expected = sum(make_model(folder).encode(["one dog"]) for folder in tower_folders)
    assert loaded.model.encode(["one dog"]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "missing", ["model.safetensors", "config.json", "tokenizer.json", "1_Pooling"]
)
def test_a_folder_with_something_missing_is_refused_in_one_sentence(
    model_folders, tmp_path, missing
):
    folder = shutil.copytree(model_folders[0], tmp_path / "broken")
    path = folder / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(UserError) as refusal:
        load_model(str(folder))
    assert str(folder) in str(refusal.value)
    assert len(refusal.value.faults) == 1


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"neither modules\.json nor config\.json"):
        load_model(str(tmp_path))
    (tmp_path / "modules.json").write_text("{}")
    with pytest.raises(UserError):
        load_model(str(tmp_path))
    (tmp_path / "modules.json").write_text("[")
    with pytest.raises(UserError, match="is not a list of modules"):
        load_model(str(tmp_path))
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UserError, match="is a file; give the folder"):
        load_model(str(file))
    with pytest.raises(
        UserError, match="not a local folder, and the Hub has no such model or cannot be reached"
    ):
        load_model("nobody/nothing")


def test_remote_code_runs_only_when_asked(model_folders, tmp_path):
    folder = shutil.copytree(model_folders[0], tmp_path / "custom")
    listing = json.loads((folder / "modules.json").read_text())
    listing[1]["type"] = "my_code.Pooling"
    (folder / "modules.json").write_text(json.dumps(listing))
    (folder / "my_code.py").write_text(
        "from sentence_transformers.sentence_transformer.modules import Pooling as Base\n"
        "class Pooling(Base):\n    pass\n"
    )
    with pytest.raises(UserError, match="trust_remote_code"):
        load_model(str(folder))
    assert load_model(str(folder), trust_remote_code=True).model.encode(["one dog"]).shape == (
        1,
        32,
    )
