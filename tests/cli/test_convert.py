"""st-convert: weights bit by bit in both directions, and nothing left behind by a refusal."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import make_encoder, make_sentences, make_tokenizer, save_encoder
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from st_jtcse.cli.convert import main
from st_jtcse.errors import PoolerNeeded
from st_jtcse.modules import TwinCrossAttentionEncoder, twin_encoder
from st_jtcse.modules.joining import twin_of

SENTENCES = make_sentences(8)


def convert(*arguments):
    return main([str(argument) for argument in arguments])


def weights(folder):
    return load_file(folder / "model.safetensors")


def assert_bit_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value), name


def without_pooler(folder, seed):
    encoder = make_encoder(seed)
    state = {
        name: value
        for name, value in encoder.state_dict().items()
        if not name.startswith("pooler.")
    }
    encoder.save_pretrained(folder, state_dict=state)
    make_tokenizer().save_pretrained(folder)
    return folder


def names_below(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("family", "dtype"), [("bert", torch.float32), ("roberta", torch.bfloat16)]
)
def test_both_directions_keep_every_weight_bit_by_bit(family, dtype, tmp_path):
    encoders = [tmp_path / "encoder_1", tmp_path / "encoder_2"]
    for seed, folder in enumerate(encoders, start=1):
        make_encoder(seed, family).to(dtype).save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)
    twin, towers, again = tmp_path / "twin", tmp_path / "towers", tmp_path / "again"
    assert convert("join", *encoders, twin) == 0
    assert convert("split", twin, towers) == 0
    assert sorted(path.name for path in towers.iterdir()) == ["tower_1", "tower_2"]
    for encoder, tower in zip(encoders, (towers / "tower_1", towers / "tower_2")):
        assert any(name.startswith("pooler.") for name in weights(tower))
        assert_bit_equal(weights(tower), weights(encoder))
        assert type(AutoModel.from_pretrained(tower)) is type(AutoModel.from_pretrained(encoder))
        assert AutoTokenizer.from_pretrained(tower).get_vocab() == make_tokenizer().get_vocab()
    assert convert("join", towers / "tower_1", towers / "tower_2", again) == 0
    assert_bit_equal(weights(again), weights(twin))
    assert (again / "config.json").read_text() == (twin / "config.json").read_text()


def test_a_joined_twin_is_the_sum_of_the_towers_cls(tower_folders, tmp_path, capsys):
    options = (
        "--cross-attention-every",
        "none",
        "--cross-residual",
        "local",
        "--max-seq-length",
        8,
    )
    assert convert("join", *tower_folders, tmp_path / "new" / "twin", *options) == 0
    saved, usage = capsys.readouterr().out.splitlines()
    assert saved == f"Saved {tmp_path / 'new' / 'twin'}."
    names = {}
    exec(
        usage.removeprefix("Use it: ").replace(
            "; SentenceTransformer(", "; vector = SentenceTransformer("
        ),
        names,
    )
    assert names["vector"].shape == (1, 32)
    model = SentenceTransformer(str(tmp_path / "new" / "twin"), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling"]
    assert model[1].pooling_mode == "cls" and model.max_seq_length == 8
    config = model[0].model.config
    assert (config.cross_attention_every, config.cross_residual) == (None, "local")
    batch = make_tokenizer()(
        SENTENCES, padding=True, truncation=True, max_length=8, return_tensors="pt"
    )
    with torch.no_grad():
        states = [
            AutoModel.from_pretrained(tower)(**batch).last_hidden_state[:, 0]
            for tower in tower_folders
        ]
    assert np.abs(model.encode(SENTENCES) - (states[0] + states[1]).numpy()).max() < 1e-6


def test_a_pooler_is_drawn_only_where_asked_and_the_same_each_time(tmp_path, capsys):
    towers = [without_pooler(tmp_path / str(seed), seed) for seed in (1, 2)]
    assert convert("join", *towers, tmp_path / "refused") == 2
    assert (
        "The first tower has no pooler weights; ask for random ones (--random-pooler)"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "refused").exists()
    for seed, name in enumerate(("one", "two")):
        torch.manual_seed(seed)
        assert convert("join", *towers, tmp_path / name, "--random-pooler") == 0
    assert_bit_equal(weights(tmp_path / "one"), weights(tmp_path / "two"))
    poolers = [weights(tmp_path / "one")[f"towers.{index}.pooler.dense.weight"] for index in (0, 1)]
    assert not torch.equal(*poolers)
    assert all(0.01 < pooler.std() < 0.03 for pooler in poolers)


def test_only_the_tower_without_a_pooler_gets_a_random_one(tower_folders, tmp_path):
    bare = without_pooler(tmp_path / "bare", 2)
    assert convert("join", tower_folders[0], bare, tmp_path / "twin", "--random-pooler") == 0
    state, given = weights(tmp_path / "twin"), weights(tower_folders[0])
    assert torch.equal(state["towers.0.pooler.dense.weight"], given["pooler.dense.weight"])


def test_from_towers_draws_by_its_seed_or_refuses(tmp_path):
    towers = [without_pooler(tmp_path / str(seed), seed) for seed in (1, 2)]
    name = "pooler.dense.weight"

    def drawn(**options):
        return (
            TwinCrossAttentionEncoder.from_towers(*towers, **options)
            .model.towers[0]
            .state_dict()[name]
        )

    assert torch.equal(drawn(), drawn(pooler_seed=0))
    assert not torch.equal(drawn(), drawn(pooler_seed=1))
    with pytest.raises(PoolerNeeded, match="The first tower has no pooler weights"):
        twin_of(*towers, pooler_seed=None)


@pytest.fixture
def faulty(tower_folders, tmp_path):
    """Folders that cannot be converted, by name."""
    folders = {name: tmp_path / name for name in ("full", "deeper", "half", "lacking", "empty")}
    folders["full"].mkdir()
    (folders["full"] / "mine.txt").write_text("keep")
    folders["empty"].mkdir()
    save_encoder(folders["deeper"], 2, num_hidden_layers=2)
    make_encoder(2).to(torch.float16).save_pretrained(folders["half"])
    make_tokenizer().save_pretrained(folders["half"])
    encoder = make_encoder(2)
    state = {
        name: value
        for name, value in encoder.state_dict().items()
        if name != "encoder.layer.1.output.dense.bias"
    }
    encoder.save_pretrained(folders["lacking"], state_dict=state)
    make_tokenizer().save_pretrained(folders["lacking"])
    return {
        **folders,
        "good": tower_folders[0],
        "out": tmp_path / "out",
        "missing": tmp_path / "missing",
    }


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "join good missing out",
            "missing' cannot be loaded: it is not a local folder, and the Hub has no such model",
        ),
        ("join good empty out", "empty"),
        (
            "join good deeper out",
            "The towers differ in num_hidden_layers: 4 in the first, 2 in the second",
        ),
        (
            "join good half out",
            "The towers differ in dtype: torch.float32 in the first, torch.float16 in the second",
        ),
        (
            "join good lacking out",
            "lacks the weight 'encoder.layer.1.output.dense.bias'; it is not a complete bert model",
        ),
        ("join good good full", "full is not empty; choose another folder."),
        (
            "join good good out --cross-attention-every 3",
            "must divide the towers' 4 layers, found 3; use one of 1, 2, 4",
        ),
        ("split good out", "holds a bert model, not a twin encoder"),
        ("split missing out", "missing' cannot be loaded"),
        ("split good full", "full is not empty"),
    ],
)
def test_a_fault_is_one_line_and_leaves_nothing(command, message, faulty, tmp_path, capsys):
    before = names_below(tmp_path)
    assert convert(*(faulty.get(word, word) for word in command.split())) == 2
    output = capsys.readouterr()
    (line,) = output.err.splitlines()
    assert line.startswith(f"st-convert {command.split()[0]}: ") and message in line
    assert output.out == ""
    assert names_below(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["join", "a", "b", "c", "--cross-attention-every", "0"],
            "expected a number of layers, or none, found '0'",
        ),
        (
            ["join", "a", "b", "c", "--max-seq-length", "many"],
            "expected a number of tokens, found 'many'",
        ),
        (["join", "a", "b"], "required: OUTPUT"),
        ([], "required: COMMAND"),
    ],
)
def test_wrong_arguments_are_told_by_name(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


def test_a_twin_that_lacks_weights_is_not_split(tower_folders, tmp_path, capsys):
    twin = twin_of(*tower_folders)
    lost = "towers.1.encoder.layer.0.output.dense.bias"
    state = {name: value for name, value in twin.state_dict().items() if name != lost}
    twin.save_pretrained(tmp_path / "twin", state_dict=state)
    make_tokenizer().save_pretrained(tmp_path / "twin")
    assert convert("split", tmp_path / "twin", tmp_path / "towers") == 2
    assert f"lacks the weight '{lost}'; it is not a complete twin" in capsys.readouterr().err


def test_an_interrupt_leaves_nothing_and_an_empty_output_is_taken(
    tower_folders, tmp_path, monkeypatch, capsys
):
    (tmp_path / "twin").mkdir()
    with monkeypatch.context() as patch:
        real = twin_encoder.save_for_inference

        def interrupted(model, folder):
            real(model, folder)
            raise KeyboardInterrupt

        patch.setattr(twin_encoder, "save_for_inference", interrupted)
        assert convert("join", *tower_folders, tmp_path / "twin") == 130
    assert "Interrupted; nothing was written." in capsys.readouterr().err
    assert names_below(tmp_path) == [(tmp_path / "twin").relative_to(tmp_path)]
    assert convert("join", *tower_folders, tmp_path / "twin") == 0


def test_the_installed_command_tells_a_random_pooler_once(tmp_path):
    towers = [without_pooler(tmp_path / str(seed), seed) for seed in (1, 2)]
    command = [
        sys.executable,
        "-m",
        "st_jtcse.cli.convert",
        "join",
        *map(str, towers),
        "twin",
        "--random-pooler",
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert (
        result.stderr
        == "A tower has no pooler weights; the modulus term starts from a random pooler.\n"
    )
    assert result.stdout.splitlines()[0] == "Saved twin."
