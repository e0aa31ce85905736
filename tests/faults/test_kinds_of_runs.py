"""Every kind of run that the documentation shows, killed at some moments and resumed."""

import json
import shutil

import numpy as np
import pytest
import torch
from conftest import make_sentences, save_encoder
from PIL import Image
from transformers import ResNetConfig, ResNetModel
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from faults.conftest import (
    ENCODER,
    SMALL,
    WITH_DEV,
    WITHOUT_DEV,
    Undisturbed,
    check_what_looks_finished,
    sampled,
    told,
    weights,
    write_project,
)

TAUGHT = {"teachers": [{"model": "./b", "pooling": "mean"}]}
NEAR_TEACHERS = {
    **TAUGHT,
    "loss": {"type": "EmbedDistillLoss", "distance_metric": "cosine"},
    "neighbours": {"count": 3, "weight": 0.4, "anchors": "general.txt"},
}
PAST = {"type": "ESimCSELoss", "queue_size": 8, "momentum": 0.5, "mini_batch_size": 4}
STREAMED = {"dataset": "text", "data_files": "text.txt", "columns": ["text"]}
LIVE = {**TAUGHT["teachers"][0], "cache": False}
# By kind: what its only stage has beside the plain encoder's, and what its recipe has.
KINDS = {
    "held-out text": ({**NEAR_TEACHERS, "args": WITH_DEV}, {"evaluate": {"dev": "unlabelled"}}),
    "a stream": ({"args": WITHOUT_DEV}, {"data": {"train": STREAMED, "streaming": True}}),
    "past sentences in mini-batches": ({"loss": PAST, "args": WITHOUT_DEV}, {}),
    "live teachers": (
        {"teachers": [LIVE], "loss": {"type": "RankCSELoss"}, "args": WITHOUT_DEV},
        {},
    ),
    "an adapter": (
        {"model": {**ENCODER["model"], "lora": {"r": 2}}, "args": WITH_DEV},
        {"evaluate": {"dev": "dev.jsonl"}},
    ),
    "views": ({"views": ["crop", "shuffle"], "args": WITHOUT_DEV}, {}),
    "images": (
        {"model": {"base": "./tower", "pooling": "mean"}, "args": WITHOUT_DEV},
        {"data": {"train": "pictures"}},
    ),
    "whitening": ({"whitening": {"dimensions": 4}, "loss": None}, {}),
}
ADAPT = {
    "effort": "full",
    "model": "./a",
    "model.pooling": "mean",
    "data.train": "text.txt",
    "cache_dir": "cache",
    "args.use_cpu": "true",
    "args.bf16": "false",
    "args.per_device_train_batch_size": "32",
    "stages.distilled_copies.args.max_steps": "4",
    "stages.distilled_copies.args.eval_steps": "2",
}


def write_kind(folder, kind):
    """A project whose recipe has one stage of a kind, with all files that any of them reads."""
    stage, recipe = KINDS[kind]
    project = write_project(folder, [{**ENCODER, **stage}], **{"evaluate": {}, **recipe})
    write_text(project)
    (project / "general.txt").write_text("\n".join(make_sentences(12, seed=9)) + "\n")
    if kind == "images":
        write_images(project)
    return project


def write_text(project):
    """As many sentences as a tenth can be held out of."""
    texts = list(dict.fromkeys(make_sentences(220)))[:160]
    (project / "text.txt").write_text("\n".join(texts) + "\n")


def write_images(project):
    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic")
    ResNetModel(config).save_pretrained(project / "tower")
    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(project / "tower")
    (project / "pictures").mkdir()
    drawn = np.random.default_rng(0).integers(0, 255, (32, 32, 32, 3), dtype=np.uint8)
    for number, pixels in enumerate(drawn):
        Image.fromarray(pixels).save(project / "pictures" / f"{number:02}.png")


def check_resumes(runs, straight, moments, *options, **how):
    """Resumed from what a kill at each of some moments leaves, a run gives the same bytes."""
    for at in moments:
        project = straight.back_to(at)
        if how.get("loads", True):
            check_what_looks_finished(project)
        ended = runs(project, *options, "--resume", **how.get("order", {}))
        assert ended.status == 0, f"{at}: {ended.said}"
        assert weights(project) == weights(straight.folder), at
        assert told(project) == told(straight.folder), at


def moments_of(straight, every, kept=()):
    """Some moments within a run's own folder; those at `kept` paths always."""
    moments = [
        n for n, moment in enumerate(straight.moments, 1) if moment["path"].startswith("run/")
    ]
    always = [straight.first(path) for path in kept]
    return every(moments, len(moments), 0, [moments[-2], *always])


@pytest.mark.parametrize(
    "kind", sampled(KINDS, "held-out text", "a stream", "past sentences in mini-batches")
)
def test_every_kind_of_run_that_is_killed_resumes_to_the_same_bytes(
    runs, tmp_path, kind, every, record_property
):
    project = write_kind(tmp_path / "project", kind)
    straight = Undisturbed(runs, project)
    kept = [] if kind == "whitening" else ["run/encoder/checkpoint-4"]
    moments = moments_of(straight, every, kept)
    check_resumes(runs, straight, moments, loads=kind not in ("images", "whitening"))
    record_property("cases", len(moments))


def test_adapt_that_is_killed_resumes_to_the_same_bytes(runs, tmp_path, every, record_property):
    """As a user has it: the bundled recipe by its name, changed on the command line."""
    project = tmp_path / "project"
    project.mkdir()
    save_encoder(project / "a", 1, **SMALL)
    write_text(project)
    options = [part for key, value in ADAPT.items() for part in ("--set", f"{key}={value}")]
    how = {"recipe": "adapt"}
    options += ["--output-dir", "run"]
    straight = Undisturbed(runs, project, *options, **how)
    moments = moments_of(straight, every, ["run/ranked_cls", "run/distilled_copies/checkpoint-2"])
    check_resumes(runs, straight, moments, *options, order=how)
    finished = shutil.copytree(straight.folder, project, dirs_exist_ok=True)
    ended = runs(finished, *options, "--resume", **how)
    assert ended.status == 0, ended.said
    stages = json.loads((project / "run" / "results.json").read_text())["stages"]
    assert [stage["name"] for stage in stages][-2:] == ["distilled_copies", "adapted"]
    assert stages[-2]["steps"] == 4
    record_property("cases", len(moments) + 1)
