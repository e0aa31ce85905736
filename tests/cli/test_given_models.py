"""Every command that is given a model takes a whole one, and runs no code that comes with it, also
where told `y`.
"""

import io
import json
import shutil

import pytest
import torch
import yaml
from conftest import (
    command_of,
    make_model,
    make_pairs,
    make_pipeline,
    make_sentences,
    save_language_model,
    write_rows,
)
from safetensors.torch import load_file, save_file

from st_jtcse.modules import save_for_inference

# What stands for the model that is given; `good` and `judge` are sound ones.
COMMANDS = {
    "eval": "eval GIVEN --task senteval/STSB --data data",
    "diagnose": "diagnose good GIVEN --pairs data/sts/stsb.test.jsonl --output-dir out",
    "join as I": "convert join GIVEN good out",
    "join as II": "convert join good GIVEN out",
    "split": "convert split GIVEN out",
    "scorer": "score text.txt --scorer GIVEN --judge judge --output out",
    "judge": "score text.txt --scorer good --judge GIVEN --output out",
    "push": "push GIVEN me/model --dry-run",
}
STAGES = {
    "base": {"base": "GIVEN"},
    "base and pooling": {"base": "GIVEN", "pooling": "cls"},
    "towers": {"towers": ["good", "GIVEN"], "pooling": "cls"},
    "members": {"members": [{"model": "good"}, {"model": "GIVEN"}]},
    "cross-encoder": {"cross_encoder": "GIVEN"},
}

AUTO_CLASSES = (
    "AutoConfig",
    "AutoModel",
    "AutoModelForCausalLM",
    "AutoModelForSequenceClassification",
)


@pytest.fixture(scope="module")
def root(tower_folders, tmp_path_factory):
    root = tmp_path_factory.mktemp("given")
    make_model(tower_folders[0]).save_pretrained(str(root / "good"), create_model_card=False)
    save_for_inference(make_pipeline(tower_folders), root / "twin", create_model_card=False)
    save_language_model(root / "judge", 1)
    write_rows(root / "data" / "sts" / "stsb.test.jsonl", make_pairs(16, 3))
    (root / "text.txt").write_text("\n".join(make_sentences(12)) + "\n")
    return root


@pytest.fixture
def give(root, tmp_path, monkeypatch, capsys):
    """Give a folder to a command, with a `y` for whoever asks; return the status, and what it said
    in the end.
    """
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(str(tmp_path / "given"))

    def run(command, folder):
        if command in STAGES:
            stage = {"name": "only", "model": STAGES[command], "loss": None}
            text = yaml.safe_dump({"name": "r", "output_dir": "out", "stages": [stage]}).replace(
                "GIVEN", str(folder)
            )
            (tmp_path / "recipe.yaml").write_text(text.replace("good", str(root / "good")))
            name, arguments = (
                "train",
                [str(tmp_path / "recipe.yaml"), "--output-dir", str(tmp_path / "out")],
            )
        else:
            name, *words = COMMANDS[command].split()
            places = {"GIVEN": str(folder), "out": str(tmp_path / "out")}
            arguments = [places.get(word, word) for word in words]
        monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 99))
        capsys.readouterr()
        status = command_of(name)(arguments)
        return status, capsys.readouterr().err.strip().splitlines()

    return run


def source_of(command, root):
    return root / {"split": "twin", "judge": "judge"}.get(command, "good")


def set_in(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def of_another_type(folder):
    """All that can name code does."""
    set_in(
        folder / "config.json", model_type="evil", auto_map=dict.fromkeys(AUTO_CLASSES, "evil.E")
    )
    with_a_tokenizer(folder)
    if (folder / "modules.json").is_file():
        listing = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(
            json.dumps([*listing, {"idx": 9, "name": "9", "path": "", "type": "evil.E"}])
        )


def of_a_known_type(folder):
    set_in(folder / "config.json", auto_map=dict.fromkeys(AUTO_CLASSES, "evil.E"))


def with_a_tokenizer(folder):
    tokenizer = {"AutoTokenizer": ["evil.E", "evil.E"], "AutoProcessor": "evil.E"}
    set_in(folder / "tokenizer_config.json", tokenizer_class="Evil", auto_map=tokenizer)


# Without the pictures, which take long, of a model that loads.
CASES = [
    (command, code)
    for command in (*COMMANDS, *STAGES)
    for code in (of_another_type, of_a_known_type, with_a_tokenizer)
    if (command, code) != ("diagnose", of_a_known_type)
]


@pytest.mark.parametrize(
    ("command", "code"), CASES, ids=lambda each: getattr(each, "__name__", each)
)
def test_a_models_code_does_not_run(command, code, root, give, tmp_path):
    folder = shutil.copytree(source_of(command, root), tmp_path / "given")
    (folder / "evil.py").write_text(
        f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    )
    code(folder)
    status, told = give(command, folder)
    assert not (tmp_path / "ran").exists()
    # Where the libraries know the type, its code is not needed; and a push reads no more than the
    # files.
    if code is of_a_known_type or command == "push":
        assert status == 0
    else:
        assert status == 2 and "code" in told[-1] and not (tmp_path / "out" / "only").exists()


def half_of_the_layers(folder):
    settings = json.loads((folder / "config.json").read_text())
    for each in (settings, settings.get("tower", {})):
        each["num_hidden_layers"] = 8
    (folder / "config.json").write_text(json.dumps(settings))
    return "lacks the weight '"


def no_numbers(folder):
    weights = load_file(folder / "model.safetensors")
    next(
        weight for key, weight in weights.items() if "dense.weight" in key or "down_proj" in key
    ).fill_(torch.nan)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return "is not finite"


def no_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    return "token"


@pytest.mark.parametrize(
    "damage", [half_of_the_layers, no_numbers, no_tokenizer], ids=lambda damage: damage.__name__
)
@pytest.mark.parametrize("command", [*COMMANDS, *STAGES])
def test_a_model_that_is_not_whole_is_refused(command, damage, root, give, tmp_path):
    folder = shutil.copytree(source_of(command, root), tmp_path / "given")
    expected = damage(folder)
    status, told = give(command, folder)
    assert status == 2 and expected in told[-1] and str(folder) in told[-1]
    assert not any("Traceback" in line or "LOAD REPORT" in line for line in told)
    assert not (tmp_path / "out" / "only").exists() and (
        command in STAGES or not (tmp_path / "out").exists()
    )
