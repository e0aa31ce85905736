"""A push sends what a model is made of, nothing else that lies in its folder, and no model that is
not whole.
"""

import json
import os
import re
import shutil

import pytest
import torch
from conftest import make_model, make_pipeline, save_encoder
from peft import LoraConfig
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense

from st_jtcse.cli.push import main
from st_jtcse.errors import UserError
from st_jtcse.hub.model_files import check_whole, files_to_push
from st_jtcse.hub.model_form import model_form
from st_jtcse.modules import MultiTokenizerEnsemble, save_for_inference


@pytest.fixture(scope="module")
def saved(tower_folders, tmp_path_factory):
    root = tmp_path_factory.mktemp("files")
    first, second = (make_model(folder) for folder in tower_folders)
    dense = SentenceTransformer(modules=[*first, Dense(32, 32)], device="cpu")
    dense.save_pretrained(str(root / "plain"))
    save_for_inference(make_pipeline(tower_folders), root / "twin")
    several = SentenceTransformer(modules=[MultiTokenizerEnsemble([dense, second])], device="cpu")
    save_for_inference(several, root / "several")
    CrossEncoder(str(tower_folders[0]), num_labels=1, device="cpu").save_pretrained(
        str(root / "cross")
    )
    save_encoder(root / "encoder", 1)
    first[0].model.save_pretrained(root / "sharded", max_shard_size="20KB")
    first.tokenizer.save_pretrained(root / "sharded")
    return root


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved / "plain", tmp_path / "plain")


def contents(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("family", ["plain", "twin", "several", "cross", "encoder", "sharded"])
def test_every_file_of_a_model_is_sent(family, saved, tmp_path):
    folder = shutil.copytree(saved / family, tmp_path / family)
    (folder / "evaluation").mkdir()
    for name in ("training_results.json", "evaluation/results.json"):
        (folder / name).write_text("{}")
    for name in (
        "LICENSE",
        "vocab.txt",
        "README.md",
        "evaluation/results.md",
        "evaluation/sts7.png",
        "evaluation/index.html",
    ):
        (folder / name).write_text("x")
    files = files_to_push(folder)
    assert set(files.sent) == contents(folder) and files.note is None
    check_whole(folder, files)


def test_what_no_model_is_made_of_stays(folder, capsys):
    before = contents(folder)
    others = [
        "id_rsa",
        "optimizer.pt",
        "training_args.bin",
        "scheduler.pt",
        "rng_state.pth",
        "notes.txt",
        "my.py",
        ".env",
    ]
    for name in [
        *others,
        "secrets.json",
        "old/model.safetensors",
        "1_Pooling/id_rsa",
        "checkpoint-4/optimizer.pt",
    ]:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")  # Nobody would ever write what is read there.
    assert set(files_to_push(folder).sent) == before
    assert main([str(folder), "me/model", "--dry-run"]) == 0
    told = capsys.readouterr()
    assert "id_rsa" not in told.out and "passwd" not in told.out and "optimizer" not in told.out
    assert told.err.startswith(
        "Not sent, because it is not part of a model: 1_Pooling/id_rsa, id_rsa, link, my.py"
    )
    assert (
        told.err.strip().endswith("and 4 more.")
        and ".env" not in told.err
        and "checkpoint" not in told.err
    )


def test_code_that_the_configurations_name_is_sent_with_them(folder):
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"model_type": "evil", "auto_map": {"AutoConfig": "net.C", "AutoModel": "net.M"}}
    (folder / "config.json").write_text(json.dumps(settings))
    for name in ("net.py", "other.py"):
        (folder / name).write_text("raise SystemExit('it ran')")
    files = files_to_push(folder)
    assert "net.py" in files.sent and files.left_out == ["other.py"]
    # It is no fault that its code does not run here.
    check_whole(folder, files)


@pytest.mark.parametrize(
    "name", ["README.md", "1_Pooling", "2_Dense/model.safetensors", "vocab.txt"]
)
@pytest.mark.parametrize("target", ["away", "nowhere"])
def test_a_link_that_leaves_the_folder_is_refused(name, target, folder, tmp_path):
    path = folder / name
    if path.is_dir():
        path.rename(tmp_path / "away")
    elif path.exists():
        path.rename(tmp_path / "away")
    else:
        (tmp_path / "away").write_text("x")
    path.symlink_to(tmp_path / target)
    with pytest.raises(
        UserError, match=f"{name} is a link that leaves the model's folder; put the file itself"
    ):
        files_to_push(folder)


def test_a_link_within_the_folder_is_no_fault(folder):
    (folder / "2_Dense" / "model.safetensors").rename(folder / "dense.safetensors")
    (folder / "2_Dense" / "model.safetensors").symlink_to("../dense.safetensors")
    check_whole(folder, files_to_push(folder))


def cut(folder):
    path = folder / "2_Dense" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    return r"2_Dense/model\.safetensors is damaged or not whole"


def unsound(folder):
    weights = load_file(folder / "model.safetensors")
    weights["pooler.dense.bias"].fill_(torch.inf)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return r"model\.safetensors holds the weight 'pooler\.dense\.bias', which is not finite"


def shallow(folder):
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"num_hidden_layers": 8}))
    return r"lacks the weight 'encoder\.layer\.4"


def broken(folder):
    (folder / "config.json").write_text("{")
    return r"config\.json is not JSON; copy it again, or save the model"


def listed(folder):
    (folder / "tokenizer_config.json").write_text("[]")
    return r"tokenizer_config\.json is not a JSON object"


def prompted(folder):
    settings = {"prompts": 5, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return "prompts: expected a mapping, found 5"


def wordless(folder):
    (folder / "tokenizer.json").unlink()
    return "Can't instantiate a processor, a tokenizer"


def unpooled(folder):
    (folder / "1_Pooling" / "config.json").unlink()
    return "nothing says how tokens are pooled"


@pytest.mark.parametrize(
    "damage", [cut, unsound, shallow, broken, listed, prompted, wordless, unpooled]
)
@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["push", "dry run"])
def test_a_model_that_is_not_whole_is_not_sent(damage, options, folder, hub, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", hub.write_token)
    told = damage(folder)
    assert main([str(folder), "org/model", *options]) == 2
    shown = capsys.readouterr()
    assert re.search(told, shown.err) and len(shown.err.strip().splitlines()) == 1
    assert not shown.out and not hub.requests


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("config.json", "model_type"),
        ("config_sentence_transformers.json", "prompts"),
        ("config_sentence_transformers.json", "default_prompt_name"),
        ("sentence_bert_config.json", "modality_config"),
    ],
)
@pytest.mark.parametrize("value", [None, 5, [], ["a"], {}, {"a": []}])
def test_settings_of_another_type_are_as_if_they_were_not_there(folder, name, key, value):
    settings = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(settings | {key: value}))
    form = model_form(folder)
    assert (form.prompt, form.images) == ("", False)
    assert form.architecture == (None if key == "model_type" else "bert")


@pytest.mark.parametrize("text", ["null", "[]", "5"])
def test_settings_that_are_no_object_are_told(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config\.json is not a JSON object; copy it"):
        model_form(folder)


def test_an_adapter_without_a_name_of_its_base_is_refused(folder):
    for base in (5, None, ["a"]):
        (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
        with pytest.raises(UserError, match="holds an adapter for a model that only this machine"):
            check_whole(folder, files_to_push(folder))


def test_an_adapters_files_are_judged_alone(tower_folders, tmp_path):
    model = make_model(tower_folders[0])
    model.add_adapter(LoraConfig(r=2, target_modules=["query"]))
    model.save_pretrained(str(tmp_path / "adapter"))
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": "org/base"})
    )
    files = files_to_push(tmp_path / "adapter")
    assert {"adapter_config.json", "adapter_model.safetensors"} <= set(
        files.sent
    ) and not files.left_out
    check_whole(tmp_path / "adapter", files)
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(UserError, match=r"adapter_model\.safetensors is damaged or not whole"):
        check_whole(tmp_path / "adapter", files)
    path.write_text("[")
    with pytest.raises(UserError, match=r"adapter_config\.json is not JSON"):
        check_whole(tmp_path / "adapter", files)
