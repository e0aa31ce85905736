"""MatryoshkaLoss by a recipe: around losses of this package and of Sentence-Transformers, or
refused.
"""

import itertools
import json

import pytest
from conftest import make_sentences, save_encoder

from st_jtcse.cli.train import main


@pytest.fixture
def project(tmp_path):
    """An encoder, a teacher of its size, text and judged pairs; `train` runs a recipe of one stage."""
    save_encoder(tmp_path / "a", 1)
    save_encoder(tmp_path / "b", 2)
    sentences = make_sentences(24)
    (tmp_path / "text.txt").write_text("\n".join(sentences) + "\n")
    rows = [
        {"sentence1": a, "sentence2": b, "score": i % 2}
        for i, (a, b) in enumerate(itertools.pairwise(sentences))
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def train(project, loss, **stage):
    model = {"base": "./a", "pooling": "mean"}
    recipe = {
        "name": "tiny",
        "output_dir": str(project / "run"),
        "cache_dir": str(project / "cache"),
        "data": {"train": "text.txt"},
        "args": {
            "max_steps": 2,
            "logging_steps": 1,
            "save_steps": 1,
            "use_cpu": True,
            "disable_tqdm": True,
        },
        "stages": [{"name": "one", "model": model, "loss": loss, **stage}],
    }
    (project / "recipe.yaml").write_text(json.dumps(recipe))
    return main([str(project / "recipe.yaml")])


def record(project):
    return json.loads((project / "run" / "results.json").read_text())["stages"][0]


PAIRS = {"data": {"pairs": "pairs.jsonl", "labels": "scores", "score_range": [0, 1]}}
TEACHER = {"teachers": [{"model": "./b", "pooling": "cls"}]}
JUDGED = {"pair_scores": "pairs.jsonl"}


@pytest.mark.parametrize(
    ("loss", "more"),
    [
        ({"type": "SimCSELoss"}, {}),
        ({"type": "LSRNSLoss"}, TEACHER | JUDGED),
        ({"type": "MSELoss"}, TEACHER),
        ({"type": "CoSENTLoss"}, PAIRS),
    ],
    ids=["SimCSELoss", "LSRNSLoss", "MSELoss", "CoSENTLoss"],
)
def test_a_stage_trains_on_the_sizes_that_are_named(project, loss, more):
    given = {"matryoshka_dims": [32, 8], "matryoshka_weights": [1, 0.5]}
    assert train(project, loss | given, **more) == 0
    found = record(project)
    assert found["steps"] == 2 and found["loss"] == loss | given
    assert "matryoshka" in (project / "run" / "one" / "README.md").read_text().lower()


def test_without_sizes_nothing_is_said_of_them(project):
    assert train(project, {"type": "SimCSELoss"}) == 0
    assert record(project)["loss"] == {"type": "SimCSELoss"}
    assert "matryoshka" not in (project / "run" / "recipe.yaml").read_text()


@pytest.mark.parametrize(
    ("loss", "more", "told"),
    [
        (
            {"type": "SimCSELoss", "matryoshka_dims": [64, 8]},
            {},
            "loss.matryoshka_dims: expected sizes of at most 32, the embedding's, found 64. "
            "Correct it.",
        ),
        (
            {"type": "EmbedDistillLoss", "projection_dim": 32, "matryoshka_dims": [32, 8]},
            TEACHER,
            "expected a loss that takes embeddings of any size, found EmbedDistillLoss, which has "
            "weights for 32. ",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(project, capsys, loss, more, told):
    assert train(project, loss, **more) == 2
    assert told in capsys.readouterr().err
    assert not (project / "run" / "one").exists()
