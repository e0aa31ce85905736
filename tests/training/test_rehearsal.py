"""What only the libraries can judge is told before anything is written, and the rehearsal leaves no
trace.
"""

import itertools
import json
import os
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import WORDS, make_config, make_tokenizer
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from test_run import project, refusal, results, train, weights  # noqa: F401  # project is a fixture
from test_stages import ENCODER, write
from transformers import AutoModel, ModernBertConfig

from st_jtcse.modules import MultiTokenizerEnsemble
from st_jtcse.modules.shared_words import share_words, words_shared
from st_jtcse.recipe.load import load_recipe
from st_jtcse.training import rehearsal, stage_arguments, stand_ins
from st_jtcse.training.stage_inputs import load_inputs

DIRECT = {"model": {"base": "./a", "pooling": "cls"}, "loss": {"type": "SimCSELoss"}}
PAIRS = {
    "model": {"base": "./a", "pooling": "mean"},
    "data": {"pairs": "dev.jsonl"},
    "loss": {"type": "CoSENTLoss"},
}


def encoder(**args):
    return ENCODER | DIRECT | {"args": args}


@pytest.mark.parametrize(
    ("args", "expected", "reason"),
    [
        (
            {"lr_scheduler_kwargs": {"nonsense": 1}},
            "a value that a step of training takes, found a mapping",
            "nonsense",
        ),
        ({"optim": "lomo"}, "found 'lomo'", "lomo"),
        ({"optim_args": "nonsense"}, "found 'nonsense'", "ValueError"),
        ({"report_to": "wandb"}, "found 'wandb'", "wandb"),
        ({"report_to": "nonsense"}, "found 'nonsense'", "nonsense"),
        ({"batch_sampler": "group_by_label"}, "found 'group_by_label'", "label"),
        ({"use_liger_kernel": True}, "found true", "liger"),
        ({"prompts": {"other_column": "query: "}}, "", None),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_argument_that_only_the_libraries_judge_is_told_at_its_key(
    project,  # noqa: F811
    capsys,
    args,
    expected,
    reason,
):
    write(project, encoder(**args))
    (key,) = args
    if reason is None:  # What the libraries take is not for us to refuse.
        assert train(project, "--dry-run") == 0
        return
    told = refusal(project, capsys)
    assert f"stages[0].args.{key}: expected a value that a step of training takes" in told
    assert expected in told and reason.lower() in told.lower()
    assert told.count("\n") == 1 and "Traceback" not in told and "Correct it." in told


def test_a_corrected_recipe_is_the_folders_first(project, capsys):  # noqa: F811
    write(project, encoder(optim="lomo"))
    refusal(project, capsys)
    write(project, encoder())
    assert train(project) == 0


def test_an_argument_of_the_recipe_is_told_there(project, capsys):  # noqa: F811
    write(project, encoder(), optim="lomo")
    for options in ([], ["--dry-run"]):
        told = refusal(project, capsys, *options)
        assert (
            "recipe.yaml:1 args.optim: expected a value that a step of training takes, found 'lomo'"
            in told
        )


def test_unset_steps_are_as_many_as_the_epochs_make(project):  # noqa: F811
    write(
        project,
        encoder(
            max_steps=-1, num_train_epochs=1, per_device_train_batch_size=16, eval_strategy="no"
        ),
    )
    assert train(project) == 0
    assert results(project)["stages"][0]["steps"] == 5


def test_an_argument_of_a_loss_is_told_at_its_key(project, capsys):  # noqa: F811
    loss = {"type": "CachedMultipleNegativesRankingLoss", "mini_batch_size": 0}
    source = {"file": "dev.jsonl", "columns": ["sentence1", "sentence2"]}
    write(project, ENCODER | PAIRS | {"loss": loss, "data": {"pairs": source, "labels": "none"}})
    told = refusal(project, capsys)
    assert (
        "stages[0].loss.mini_batch_size: expected a value that CachedMultipleNegativesRankingLoss "
        "takes" in told
    )


def states():
    numbers = np.random.get_state()[1].tolist()  # noqa: NPY002
    deterministic = torch.are_deterministic_algorithms_enabled()
    return [
        random.getstate(),
        numbers,
        torch.get_rng_state().tolist(),
        dict(os.environ),
        deterministic,
    ]


def test_nothing_is_left_behind(project, monkeypatch, tmp_path_factory):  # noqa: F811
    """Not in the process, which trains the same weights afterwards, nor on the disk."""
    write(project, encoder(full_determinism=True, dataloader_num_workers=1))
    loaded = load_recipe(str(project / "recipe.yaml"))
    inputs = load_inputs(loaded.stages)
    model = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = states()
    done = set()
    rehearsal.rehearse(loaded, ["encoder"], inputs, done)
    assert len(done) == 1
    assert states() == before
    assert not list(temporary.iterdir())
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == model


def test_the_weights_are_those_of_a_run_without_it(project, monkeypatch):  # noqa: F811
    assert train(project) == 0
    monkeypatch.setattr("st_jtcse.training.runner.rehearse", lambda *given: None)
    assert train(project, "--output-dir", str(project / "straight")) == 0
    assert weights(project) == weights(project, "straight")


@pytest.mark.skipif(torch.accelerator.is_available(), reason="is about CPUs")
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("fpu avx512_bf16", "this processor supports bf16 (avx512_bf16), which makes steps faster"),
        ("fpu avx2", "this processor does not support bf16, so bf16 makes steps slower"),
    ],
)
def test_bf16_on_a_cpu_says_what_it_needs_and_what_it_gains(
    project,  # noqa: F811
    capsys,
    monkeypatch,
    flags,
    told,
):
    (project / "cpuinfo").write_text(flags)
    monkeypatch.setattr(stage_arguments, "_FLAGS", project / "cpuinfo")
    write(project, encoder(bf16=True, use_cpu=False))
    assert f"On a CPU bf16 needs args.use_cpu: true; {told}." in refusal(project, capsys)
    write(project, encoder(bf16=True))
    assert train(project, "--dry-run") == 0
    assert f"  {told}\n" in capsys.readouterr().out


@pytest.mark.skipif(torch.accelerator.is_available(), reason="is about CPUs")
@pytest.mark.parametrize(("flags", "meant"), [("fpu avx512_bf16", True), ("fpu avx2", False)])
def test_bf16_auto_is_true_on_a_processor_that_has_it(project, capsys, monkeypatch, flags, meant):  # noqa: F811
    (project / "cpuinfo").write_text(flags)
    monkeypatch.setattr(stage_arguments, "_FLAGS", project / "cpuinfo")
    for folder, value in {"auto": "auto", "said": meant, "other": not meant}.items():
        write(project, encoder(bf16=value))
        assert train(project, "--output-dir", str(project / folder)) == 0
    assert weights(project, "auto") == weights(project, "said") != weights(project, "other")


def test_the_minutes_are_those_of_the_step_not_of_other_programs(project, monkeypatch):  # noqa: F811
    """As on a machine that is so busy that seconds by the clock pass between any two instructions."""
    ticks = itertools.count(0, 1000)
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    loaded = load_recipe(str(project / "recipe.yaml"))
    names = [stage.name for stage in loaded.stages]
    lines = rehearsal.rehearse(loaded, names, load_inputs(loaded.stages))
    assert lines[-1].startswith("training takes about a minute on this machine; ")


def test_stages_that_a_sweep_shares_are_rehearsed_once_and_all_before_the_first(
    project,  # noqa: F811
    capsys,
    monkeypatch,
):
    recipe = json.loads(json.dumps(ENCODER | DIRECT))
    write(project, recipe | {"name": "one"}, recipe | {"name": "two"})
    steps = []
    monkeypatch.setattr(
        rehearsal, "_go", lambda run, stage, *rest, **more: steps.append((stage.name, stage.args))
    )
    sweep = [
        "--set",
        "seeds=[1, 2]",
        "--set",
        "sweep={stages.two.args: [{optim: adamw_torch}, {optim: lomo}]}",
    ]
    assert train(project, *sweep, "--dry-run") == 0
    # Of the second point the first stage is only assembled.
    assert [(name, args.get("optim")) for name, args in steps if name == "two"] == [
        ("two", "adamw_torch"), ("two", "lomo")
    ]  # fmt: skip
    monkeypatch.undo()
    told = refusal(project, capsys, *sweep)
    assert (
        "stages[1].args.optim: expected a value that a step of training takes, found 'lomo'" in told
    )


def large(folder, kind=None, **more):
    """A model too large to stand for itself."""
    torch.manual_seed(0)
    config = (
        kind(**more)
        if kind
        else make_config(hidden_size=64, intermediate_size=64, vocab_size=70_000)
    )
    AutoModel.from_config(config).save_pretrained(folder)
    make_tokenizer(
        [*WORDS, *(f"w{number}" for number in range(config.vocab_size - len(WORDS) - 5))]
    ).save_pretrained(folder)
    return config


def test_a_large_model_is_stood_for_by_a_small_one_of_its_kind_and_size(project, tmp_path):  # noqa: F811
    large(project / "large")
    copy = stand_ins.small_copy(str(project / "large"), tmp_path / "small", lambda layers: 2)
    assert copy == str(tmp_path / "small")
    encoder = Transformer(copy)
    model = SentenceTransformer(modules=[encoder, Pooling(64, "cls")], device="cpu")
    assert encoder.model.config.num_hidden_layers == 2 and encoder.get_embedding_dimension() == 64
    assert sum(parameter.numel() for parameter in model.parameters()) < 200_000
    with words_shared(stand_ins.WORDS):
        assert share_words(model)
    # Words beyond the table have vectors too: those of the ones that it keeps.
    assert np.isfinite(model.encode(["w69000 the dog"])).all()
    # A small model stands for itself.
    assert stand_ins.small_copy(str(project / "a"), tmp_path / "none", lambda layers: 2) == str(
        project / "a"
    )


def test_a_modern_backbone_is_cut_with_its_lists_and_token_ids(tmp_path):
    config = large(
        tmp_path / "modern", ModernBertConfig, vocab_size=60_000, hidden_size=96, intermediate_size=96,
        num_hidden_layers=5, num_attention_heads=4, pad_token_id=59_999, bos_token_id=2, eos_token_id=3,
        cls_token_id=2, sep_token_id=3,
    )  # fmt: skip
    copy = stand_ins.small_copy(str(tmp_path / "modern"), tmp_path / "small", lambda layers: 2)
    small = AutoModel.from_pretrained(copy).config
    assert copy == str(tmp_path / "small") and config.num_hidden_layers == 5
    assert (small.num_hidden_layers, small.hidden_size, small.vocab_size, small.pad_token_id) == (
        2,
        96,
        1009,
        0,
    )


def test_stages_on_large_models_are_rehearsed_in_small(project):  # noqa: F811
    """Twin, layers by number, teachers and what is called stage:NAME: all on copies, at their own
    sizes.
    """
    large(project / "large")
    recipe = load_recipe(str(project / "recipe.yaml"), [
        "stages.encoder.model.base=" + str(project / "large"), "stages.joint.model.towers.1=stage:encoder",
        "stages.distilled.model.layers=[0, 3]",
    ])  # fmt: skip
    seen = []
    original = rehearsal.SmallRun.save

    def save(run, stage, model):
        seen.append((stage.name, sum(parameter.numel() for parameter in model.parameters())))
        original(run, stage, model)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal.SmallRun, "save", save)
        rehearsal.rehearse(recipe, recipe.choose([]))
    assert [name for name, _ in seen] == ["encoder", "joint", "distilled"]
    assert max(size for _, size in seen) < 500_000
    assert not Path(recipe.recipe.output_dir).exists()


def test_a_word_without_a_vector_is_told_of_a_large_model_too(project, capsys):  # noqa: F811
    large(project / "large")
    words = json.loads((project / "large/tokenizer.json").read_text())
    words["model"]["vocab"]["zebra"] = 70_000
    (project / "large/tokenizer.json").write_text(json.dumps(words))
    write(project, ENCODER | {"model": {"base": "./large", "pooling": "cls"}})
    told = refusal(project, capsys)
    assert "large gives 'zebra' the number 70000, and the model has vectors for 70000 words" in told


def test_a_fault_of_a_small_model_is_told_of_the_written_one(project, capsys):  # noqa: F811
    large(project / "large")
    write(project, ENCODER | {"model": {"base": "./large"}})
    told = refusal(project, capsys)
    assert (
        f"Stage 'encoder': {project}/large has no modules.json: it is a plain encoder" in told
        and "st-jtcse-" not in told
    )


def test_a_base_whose_encoders_lie_in_folders_of_their_own_is_planned(project, capsys, model):  # noqa: F811
    SentenceTransformer(
        modules=[MultiTokenizerEnsemble([model, model]), Pooling(32, "cls")][:1]
    ).save_pretrained(str(project / "both"), create_model_card=False)
    assert not (project / "both" / "config.json").exists()
    write(project, {"name": "both", "model": {"base": "./both"}, "loss": None})
    capsys.readouterr()
    assert train(project, "--dry-run") == 0
    assert "both" in capsys.readouterr().out
