"""What transformers and PEFT take of a model block, told where the recipe says it and before
anything is written.
"""

import json

import pytest
from conftest import save_encoder

from st_jtcse.abilities import adapters
from st_jtcse.cli.train import main
from st_jtcse.errors import UserError
from st_jtcse.recipe.load import load_recipe

STAGE = {"name": "one", "model": {"base": "./a", "pooling": "cls"}, "loss": {"type": "SimCSELoss"}}


def write(tmp_path, *stages):
    (tmp_path / "text.txt").write_text("a dog runs\n" * 8)
    recipe = {
        "name": "tiny",
        "output_dir": str(tmp_path / "run"),
        "data": {"train": "text.txt"},
        "stages": stages,
    }
    (tmp_path / "r.yaml").write_text(json.dumps(recipe, indent=1))
    return str(tmp_path / "r.yaml")


def faults(tmp_path, model, **stage):
    with pytest.raises(UserError) as caught:
        load_recipe(write(tmp_path, STAGE | {"model": STAGE["model"] | model} | stage))
    return [fault.split(" ", 1)[1] for fault in caught.value.faults]


def test_an_attention_that_is_not_installed_is_refused_before_anything_is_written(tmp_path, capsys):
    save_encoder(tmp_path / "a", 1)
    recipe = write(
        tmp_path, STAGE | {"model": STAGE["model"] | {"attn_implementation": "flash_attention_2"}}
    )
    before = {path for path in tmp_path.rglob("*")}
    assert main([recipe]) == 2
    assert (
        "stages[0].model.attn_implementation: expected an attention that is installed, found "
        "'flash_attention_2'. "
        "Install it (pip install flash-attn, or pip install kernels), or use 'sdpa'."
    ) in capsys.readouterr().err
    assert {path for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "flash_attention_3",
            "found 'flash_attention_3'. Install it (pip install kernels), or use 'sdpa'.",
        ),
        ("kernels-community/flash-attn2", "Install it (pip install kernels), or use 'sdpa'."),
        (
            "flash_attn_2",
            "an attention of transformers, found 'flash_attn_2'. Did you mean 'flash_attention_2'?",
        ),
    ],
)
def test_other_attentions_are_told_by_name(tmp_path, name, told):
    (fault,) = faults(tmp_path, {"attn_implementation": name})
    assert fault.startswith("stages[0].model.attn_implementation: ") and fault.endswith(told)


def test_teachers_and_members_are_asked_too(tmp_path):
    frozen = {"model": "./b", "attn_implementation": "sdpaa"}
    told = "expected an attention of transformers, found 'sdpaa'. Did you mean 'sdpa'?"
    assert faults(tmp_path, {}, teachers=[frozen], loss={"type": "RankCSELoss"}) == [
        f"stages[0].teachers[0].attn_implementation: {told}"
    ]
    with pytest.raises(
        UserError, match=r"stages\[0\]\.model\.members\[0\]\.attn_implementation: expected an"
    ):
        load_recipe(write(tmp_path, STAGE | {"model": {"members": [frozen]}, "loss": None}))


def test_arguments_of_lora_are_those_of_peft(tmp_path):
    lora = {"r": "8", "rnak": 4, "lora_alhpa": 16, "bias": "some", "task_type": "CAUSAL_LM"}
    assert faults(tmp_path, {"lora": lora}) == [
        "stages[0].model.lora.r: expected a whole number, found '8'. Remove the quotes.",
        "stages[0].model.lora.rnak: expected an argument of PEFT's LoraConfig, found 'rnak'. "
        "Remove it.",
        "stages[0].model.lora.lora_alhpa: expected an argument of PEFT's LoraConfig, found "
        "'lora_alhpa'. Did you mean "
        "'lora_alpha'?",
        "stages[0].model.lora.bias: expected one of 'none', 'all', 'lora_only', found 'some'. "
        "Correct the value.",
        "stages[0].model.lora.task_type: expected an argument of PEFT's LoraConfig, found "
        "'task_type'. Remove it.",
    ]
    assert faults(tmp_path, {"lora": {"r": 0}}) == [
        "stages[0].model.lora.r: expected a number of at least 1, found 0. Correct the value."
    ]


def test_without_peft_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(adapters, "find_spec", lambda name: None)
    assert faults(tmp_path, {"lora": {}}) == [
        "stages[0].model.lora: expected PEFT, which 'lora' is put on with, found none. Install it: "
        'pip install "st-jtcse[lora]".'
    ]


@pytest.mark.parametrize("kind", [{"members": [{"model": "./a"}]}, {"cross_encoder": "./a"}])
def test_only_what_is_trained_as_an_encoder_has_adapters(tmp_path, kind):
    with pytest.raises(
        UserError,
        match=f"expected no 'lora' beside '{next(iter(kind))}', found one. Remove 'lora'.",
    ):
        load_recipe(write(tmp_path, STAGE | {"model": kind | {"lora": {"r": 4}}, "loss": None}))


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            {"matryoshka_dims": [8, 8]},
            "expected each of 'matryoshka_dims' once, found [8, 8]. Remove the others.",
        ),
        (
            {"matryoshka_dims": [8], "matryoshka_weights": [1, 2]},
            "expected as many 'matryoshka_weights' as 'matryoshka_dims', 1, found 2. Give one "
            "each, or remove them.",
        ),
        (
            {"matryoshka_weights": [1]},
            "expected as many 'matryoshka_weights' as 'matryoshka_dims', 0, found 1. ",
        ),
        ({"matryoshka_dims": [0]}, "expected a number of at least 1, found 0."),
    ],
)
def test_dimensions_that_do_not_go_together_are_refused(tmp_path, keys, told):
    (fault,) = faults(tmp_path, {}, loss={"type": "SimCSELoss", **keys})
    assert fault.startswith("stages[0].loss") and told in fault


def test_a_cross_encoder_has_no_dimensions(tmp_path):
    loss = {"type": "MSELoss", "matryoshka_dims": [8]}
    stage = STAGE | {
        "model": {"cross_encoder": "./a"},
        "loss": loss,
        "data": {"pairs": "x.jsonl", "labels": "scores"},
    }
    with pytest.raises(
        UserError,
        match="expected a model of embeddings beside 'matryoshka_dims', found a cross-enc",
    ):
        load_recipe(write(tmp_path, stage))
