"""The `neighbours` of a stage reach what it is trained on."""

import sys

import numpy as np
from sentence_transformers import SentenceTransformer
from test_run import project, refusal, train  # noqa: F401  # project is a fixture

from st_jtcse.data.neighbours import neighbourhood_means
from st_jtcse.modules import load_sentence_transformer
from st_jtcse.recipe.load import load_recipe
from st_jtcse.training.job import Job
from st_jtcse.training.models import resolver
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.stage_inputs import load_inputs

STAGE = ["--stage", "encoder", "--set", "stages.encoder.teachers=[{model: ./b, pooling: mean}]"]
NEIGHBOURS = ["--set", "stages.encoder.neighbours={count: 3, weight: 0.4}"]
LOSS = ["--set", "stages.encoder.loss={type: EmbedDistillLoss, distance_metric: cosine}"]


def overrides(*options):
    return [option for option in options if option not in ("--set", "--stage", "encoder")]


def test_the_labels_are_the_teachers_vectors_among_their_neighbours(project, monkeypatch):  # noqa: F811
    monkeypatch.chdir(project)
    plain, mixed = (vectors(labels_of(project, *options)[0]) for options in ([], NEIGHBOURS))
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert np.abs(mixed - lengths * neighbourhood_means(plain, 3, 0.4)).max() < 5e-3 * lengths.max()
    assert np.abs(mixed - plain).max() > 1e-2


def test_teachers_are_brought_to_unit_length_where_asked(project, monkeypatch):  # noqa: F811
    monkeypatch.chdir(project)
    both = (
        "[{model: ./a, pooling: cls, normalize: true}, {model: ./b, pooling: mean, normalize: "
        "true, weight: 2}]"
    )
    dataset, _, _ = labels_of(project, "--set", f"stages.encoder.teachers={both}")
    units = []
    for name, pooling in (("a", "cls"), ("b", "mean")):
        raw = load_sentence_transformer(project / name, pooling=pooling).encode(
            dataset["sentence"][:]
        )
        units.append(raw / np.linalg.norm(raw, axis=1, keepdims=True))
    assert np.abs(vectors(dataset) - (units[0] + 2 * units[1])).max() < 2e-3


def labels_of(project, *options):  # noqa: F811
    loaded = load_recipe(str(project / "recipe.yaml"), overrides(*STAGE, *LOSS, *options))
    stage = loaded.stages[0]
    loss = type(
        "Loss", (), {"model": SentenceTransformer(str(project / "b")), "projection": None}
    )()
    inputs = load_inputs([stage])["encoder"]
    folder = RunFolder(project / "run")
    job = Job(
        stage=stage,
        inputs=inputs,
        model=loss.model,
        folder=folder.stage("encoder"),
        cache_dir=project / "cache",
        seed=0,
        resolve=resolver(folder),
        loss=loss,
    )
    job.prepare()
    return job.dataset, job.record, inputs


def vectors(dataset):
    return dataset.with_format("numpy")["label"][:].astype(np.float32)


def test_anchors_keep_their_own_vectors_and_make_up_their_share(project, monkeypatch):  # noqa: F811
    monkeypatch.chdir(project)
    (project / "general.txt").write_text("the cat sleeps\na horse eats\n")
    anchored = NEIGHBOURS[1].replace("}", ", anchors: general.txt, anchor_share: 0.25}")
    plain, _, _ = labels_of(project, *NEIGHBOURS)
    dataset, told, inputs = labels_of(project, "--set", anchored)
    count = len(plain)
    assert told["neighbours_weight"] == 0.4 and inputs.hashes["anchors"]
    assert len(dataset) == count + round(count / 3)
    assert np.array_equal(vectors(dataset)[:count], vectors(plain))
    assert dataset["sentence"][count : count + 4] == ["the cat sleeps", "a horse eats"] * 2
    teacher = load_sentence_transformer(project / "b", pooling="mean")
    assert (
        np.abs(
            vectors(dataset)[count : count + 2] - teacher.encode(["the cat sleeps", "a horse eats"])
        ).max()
        < 5e-3
    )


def test_a_stage_trains_on_them_and_needs_teachers(project, monkeypatch, capsys):  # noqa: F811
    monkeypatch.chdir(project)
    told = refusal(project, capsys, "--stage", "encoder", *NEIGHBOURS)
    assert "expected 'teachers' beside 'neighbours', found none" in told
    assert train(project, *STAGE, *LOSS, *NEIGHBOURS, "--set", "args.max_steps=2") == 0


def test_a_large_text_without_faiss_is_refused_before_a_teacher_embeds_it(
    project,  # noqa: F811
    monkeypatch,
    capsys,
):
    monkeypatch.chdir(project)
    monkeypatch.setitem(sys.modules, "faiss", None)
    (project / "large.txt").write_text("the cat sleeps\n" * 100_001)
    told = refusal(project, capsys, *STAGE, *LOSS, *NEIGHBOURS, "--set", "data={train: large.txt}")
    assert (
        "100,001, are found by faiss, which is not installed; install it with: pip install "
        "'st-jtcse[index]'" in told
    )
    assert not (project / "cache").exists()
