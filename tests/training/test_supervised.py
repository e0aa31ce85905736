"""Stages that train on labelled rows, with Sentence-Transformers' own losses."""

import json

import pytest
from conftest import make_sentences
from sentence_transformers import CrossEncoder
from test_run import refusal, results, train
from test_stages import ENCODER, project, write  # noqa: F401  # project is a fixture

from st_jtcse.recipe.load import load_recipe

PAIRS = {"pairs": "pairs.jsonl"}


def overlap(first, second):
    first, second = set(first.split()), set(second.split())
    return 5 * len(first & second) / len(first | second)


@pytest.fixture
def rows(project):  # noqa: F811
    """Pairs graded by the share of common words, for training and for dev."""
    for name, seed, count in (("pairs", 1, 160), ("dev", 3, 60)):
        left = make_sentences(count, seed)
        right = [
            other if index % 3 else " ".join(text.split()[::-1][:4] + other.split()[:2])
            for index, (text, other) in enumerate(zip(left, make_sentences(count, seed + 1)))
        ]
        lines = [
            {
                "sentence1": a,
                "sentence2": b,
                "score": overlap(a, b),
                "label": int(overlap(a, b) > 1),
            }
            for a, b in zip(left, right)
        ]
        (project / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return project


def stage(loss, **data):
    return ENCODER | {
        "model": {"base": "./a", "pooling": "mean"},
        "loss": loss,
        "data": PAIRS | data,
    }


@pytest.mark.usefixtures("unrehearsed")
def test_cosent_learns_the_order_of_the_scores(rows):
    write(rows, stage({"type": "CoSENTLoss", "scale": 20.0}), max_steps=60, eval_steps=20)
    assert train(rows) == 0
    (record,) = results(rows)["stages"]
    assert record["sentences"] == 160 and record["unlabelled_rows_skipped"] == 0
    assert record["spearman"]["dev"] > record["spearman_start"]["dev"] + 1


@pytest.mark.parametrize(
    ("loss", "data"),
    [
        ({"type": "CosineSimilarityLoss"}, {}),
        (
            {"type": "SoftmaxLoss", "embedding_dimension": 32, "num_labels": 2},
            {
                "labels": "classes",
                "pairs": {"file": "pairs.jsonl", "columns": ["sentence1", "sentence2", "label"]},
            },
        ),
        (
            {"type": "ContrastiveLoss"},
            {
                "labels": "classes",
                "pairs": {"file": "pairs.jsonl", "columns": ["sentence1", "sentence2", "label"]},
            },
        ),
        (
            {"type": "TripletLoss"},
            {
                "labels": "none",
                "pairs": {
                    "file": "pairs.jsonl",
                    "columns": ["sentence1", "sentence2", "sentence1"],
                },
            },
        ),
    ],
)
@pytest.mark.usefixtures("unrehearsed")
def test_the_baselines_train(rows, loss, data):
    write(rows, stage(loss, **data))
    assert train(rows, "--dry-run") == 0
    assert train(rows) == 0
    assert results(rows)["stages"][0]["steps"] == 4


def cross(loss, **data):
    return {"name": "cross", "model": {"cross_encoder": "./a"}, "loss": loss, "data": PAIRS | data}


@pytest.mark.usefixtures("unrehearsed")
def test_a_cross_encoder_learns_the_order_of_the_scores(rows, capsys):
    write(
        rows, cross({"type": "CrossEncoderCoSENTLoss", "scale": 1.0}), max_steps=80, eval_steps=20
    )
    assert train(rows, "--dry-run") == 0
    assert train(rows) == 0
    (record,) = results(rows)["stages"]
    assert record["spearman"]["dev"] > record["spearman_start"]["dev"] + 10
    best = max(
        entry["eval_dev_spearman"] for entry in record["log"] if "eval_dev_spearman" in entry
    )
    assert record["spearman"]["dev"] == pytest.approx(100 * best, abs=1e-3)
    model = CrossEncoder(str(rows / "run" / "cross"), device="cpu")
    assert model.predict([("the dog runs", "the dog runs"), ("the dog", "a red book")]).shape == (
        2,
    )
    assert f"{record['spearman']['dev']:.2f}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("loss", "labels", "range_", "outputs"),
    [("BinaryCrossEntropyLoss", "scores", [0, 1], 1), ("CrossEntropyLoss", "classes", [0, 5], 2)],
)
def test_cross_entropy_trains_beside_it(rows, loss, labels, range_, outputs):
    source = {"file": "pairs.jsonl", "columns": ["sentence1", "sentence2", "label"]}
    stage = cross({"type": loss}, pairs=source, labels=labels, score_range=range_)
    stage["model"]["num_labels"] = outputs
    # Two outputs have no order, so such a stage is not evaluated.
    write(rows, stage, **({} if outputs == 1 else {"eval_strategy": "no"}))
    if outputs > 1:
        recipe = json.loads((rows / "recipe.yaml").read_text())
        del recipe["evaluate"]
        (rows / "recipe.yaml").write_text(json.dumps(recipe))
    assert train(rows) == 0
    assert results(rows)["stages"][0]["steps"] == 4


def test_a_data_block_without_a_source_is_laid_over_the_recipes(rows):
    softmax = stage({"type": "SoftmaxLoss", "embedding_dimension": 32, "num_labels": 5})
    own = {"labels": "classes", "bins": 5}
    write(
        rows,
        stage({"type": "CoSENTLoss"}) | {"name": "cosent", "data": None},
        softmax | {"name": "softmax", "data": own},
        softmax | {"name": "own_source", "data": PAIRS | own},
    )
    common = f"data={{pairs: {rows / 'pairs.jsonl'}, score_range: [0, 10]}}"
    assert train(rows, "--set", common) == 0
    records = results(rows)["stages"]
    assert [record["sentences"] for record in records] == [160, 160, 160]
    assert len({record["data_sha256"]["train"] for record in records}) == 3
    loaded = load_recipe(str(rows / "recipe.yaml"), [common])
    stages = loaded.stages
    assert loaded.recipe.stages[0].data is None and stages[0].data is loaded.recipe.data
    assert [block.data.score_range for block in stages[1:]] == [(0.0, 10.0), (0.0, 5.0)]
    assert stages[1].data.sources == stages[2].data.sources


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            stage({"type": "CoSENTLoss"}, labels="classes"),
            "stages[0].data.labels: expected 'labels: scores' for CoSENTLoss, found 'classes'.",
        ),
        (
            stage({"type": "SoftmaxLoss", "embedding_dimension": 32, "num_labels": 2}),
            "stages[0].data.pairs: expected 'labels: classes' for SoftmaxLoss, found 'scores'.",
        ),
        (
            ENCODER | {"loss": {"type": "CoSENTLoss"}},
            "data.train: expected labelled rows for CoSENTLoss, found sentences. Give 'pairs' "
            "instead.",
        ),
        (
            stage({"type": "MSELoss"}) | {"teachers": [{"model": "./b", "pooling": "cls"}]},
            "stages[0].teachers: expected sentences in data.train beside 'teachers', found pairs. "
            "Remove one.",
        ),
        (
            ENCODER | {"data": {"train": "text.txt", "labels": "classes"}},
            "expected 'pairs' beside 'labels', found 'train'. Remove 'labels'.",
        ),
        (
            cross({"type": "CoSENTLoss"}),
            "stages[0].loss.type: expected the name of a loss, found 'CoSENTLoss'.",
        ),
        (
            cross({"type": "CrossEntropyLoss"}),
            "expected 'labels: classes' for CrossEntropyLoss, found 'scores'.",
        ),
        (
            stage({"type": "CrossEncoderCoSENTLoss"}),
            "expected the name of a loss, found 'CrossEncoderCoSENTLoss'.",
        ),
        (
            ENCODER | {"data": {"score_range": [0, 1]}},
            "stages[0].data: expected 'pairs' beside 'score_range', found 'train'. Remove "
            "'score_range'. The rest is "
            "the recipe's 'data'.",
        ),
    ],
)
def test_data_that_do_not_fit_the_loss_are_refused(rows, capsys, block, message):
    write(rows, block)
    assert train(rows) == 2
    assert message in capsys.readouterr().err


CLASSES = {
    "labels": "classes",
    "pairs": {"file": "pairs.jsonl", "columns": ["sentence1", "sentence2", "label"]},
}
SOFTMAX = {"type": "SoftmaxLoss", "embedding_dimension": 32}
TAUGHT = {"teachers": [{"model": "./b", "pooling": "cls"}]}


def outputs(block, number, **more):
    return block | {"model": block["model"] | {"num_labels": number}} | more


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            stage(SOFTMAX | {"num_labels": 2}, labels="classes", bins=5),
            "stages[0].data.bins: expected at most 2 classes for SoftmaxLoss, found 5. Lower "
            "'bins', or set "
            "stages[0].loss.num_labels to 5.",
        ),
        (
            stage({"type": "OnlineContrastiveLoss"}, labels="classes", bins=3),
            "stages[0].data.bins: expected at most 2 classes for OnlineContrastiveLoss, found 3. "
            "Lower 'bins'.",
        ),
        (
            stage(SOFTMAX | {"num_labels": 1}, **CLASSES),
            "stages[0].loss.num_labels: expected an output for each class of SoftmaxLoss, 2 or "
            "more, found 1. Raise",
        ),
        (
            cross({"type": "CrossEntropyLoss"}, **CLASSES),
            "stages[0].model.num_labels: expected an output for each class of CrossEntropyLoss, 2 "
            "or more, found 1.",
        ),
        (
            outputs(cross({"type": "CrossEntropyLoss"}, labels="classes", bins=3), 2, evaluate={}),
            "stages[0].data.bins: expected at most 2 classes for CrossEntropyLoss, found 3. Lower "
            "'bins', or set "
            "stages[0].model.num_labels to 3.",
        ),
        (
            outputs(cross({"type": "CrossEncoderCoSENTLoss"}), 3),
            "stages[0].model.num_labels: expected 1 output for CrossEncoderCoSENTLoss, found 3. "
            "Set 1, or choose "
            "CrossEntropyLoss.",
        ),
        (
            outputs(cross({"type": "BinaryCrossEntropyLoss"}), 2),
            "stages[0].model.num_labels: expected 1 output for BinaryCrossEntropyLoss, found 2.",
        ),
        (
            outputs(cross({"type": "CrossEntropyLoss"}, **CLASSES), 3),
            "stages[0].model.num_labels: expected 1 output, the score that 'evaluate' correlates, "
            "found 3. Set 1, or "
            "evaluate the stage on nothing by stages[0].evaluate: {}.",
        ),
        (
            outputs({"name": "cross", "model": {"cross_encoder": "./a"}, "loss": None}, 3),
            "stages[0].model.num_labels: expected 1 output, the score that 'evaluate' correlates, "
            "found 3.",
        ),
    ],
)
def test_outputs_that_do_not_fit_the_classes_are_refused(rows, capsys, block, message):
    write(rows, block)
    assert message in refusal(rows, capsys)
    assert message in refusal(rows, capsys, "--dry-run")


@pytest.mark.usefixtures("unrehearsed")
def test_a_stage_of_several_outputs_opts_out_of_the_recipes_evaluation(rows):
    write(
        rows,
        outputs(cross({"type": "CrossEntropyLoss"}, **CLASSES), 3, evaluate={}),
        eval_strategy="no",
    )
    assert train(rows, "--dry-run") == 0
    assert train(rows) == 0
    assert results(rows)["stages"][0]["spearman"] == {}


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            stage(SOFTMAX | {"num_labels": 2}, **CLASSES),
            "SoftmaxLoss of stage 'encoder', found 2; correct the row, or ",
        ),
        (stage(SOFTMAX | {"num_labels": 2}, **CLASSES), "or set loss.num_labels to 5."),
        (
            stage({"type": "ContrastiveLoss"}, **CLASSES),
            "found 2; correct the row, or give data.mapping.",
        ),
        (
            stage({"type": "OnlineContrastiveLoss"}, **CLASSES),
            "for OnlineContrastiveLoss of stage 'encoder', found 2;",
        ),
        (
            outputs(cross({"type": "CrossEntropyLoss"}, **CLASSES), 2, evaluate={}),
            "for CrossEntropyLoss of stage 'cross', found 2; correct the row, or set "
            "model.num_labels to 5.",
        ),
    ],
)
def test_the_first_label_beyond_the_classes_is_named_before_anything_is_written(
    rows, capsys, block, message
):
    lines = [json.loads(line) for line in (rows / "pairs.jsonl").read_text().splitlines()]
    lines[6]["label"], lines[9]["label"] = 2, 4
    (rows / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write(rows, block, eval_strategy="no")
    for options in ([], ["--dry-run"]):
        told = refusal(rows, capsys, *options)
        assert message in told and f"{rows}/pairs.jsonl:7: expected a class below 2 for " in told
    # With a mapping onto the classes the same rows train.
    block["data"] = block["data"] | {"mapping": {"0": 0, "1": 1, "2": 1, "4": 0}}
    write(rows, block, eval_strategy="no")
    assert train(rows, "--dry-run") == 0


@pytest.mark.parametrize("loss", ["RankCSELoss", "LSRNSLoss", "MSELoss", "EmbedDistillLoss"])
def test_a_loss_that_learns_from_teachers_is_refused_without(rows, capsys, loss):
    write(rows, ENCODER | {"loss": {"type": loss}})
    told = refusal(rows, capsys, "--dry-run")
    assert (
        f"stages[0].teachers: expected the models that {loss} learns from, found none. Add "
        "'teachers: [" in told
    )
    write(rows, ENCODER | {"loss": {"type": loss}} | TAUGHT)
    assert train(rows, "--dry-run") == 0


def test_rankcse_without_its_distillation_needs_no_teachers(rows):
    write(rows, ENCODER | {"loss": {"type": "RankCSELoss", "distillation_weight": 0}})
    assert train(rows) == 0
    assert "distillation" not in results(rows)["stages"][0]["log"][0]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            ENCODER,
            "stages[0].teachers: expected no teachers beside SimCSELoss, which learns from none, "
            "found some.",
        ),
        (
            {
                "name": "twin",
                "model": {"towers": ["./a", "./b"], "pooling": "cls"},
                "loss": {"type": "JTCSELoss"},
            },
            "stages[0].teachers: expected no teachers beside JTCSELoss, which learns from none, "
            "found some. Remove "
            "them, or choose one of: LSRNSLoss, RankCSELoss, MSELoss, EmbedDistillLoss.",
        ),
        (
            ENCODER | {"loss": {"type": "MultipleNegativesRankingLoss"}},
            "expected no teachers beside MultipleNegativesRankingLoss, which learns from none, "
            "found some.",
        ),
    ],
)
def test_teachers_that_no_loss_listens_to_are_refused(rows, capsys, block, message):
    write(rows, block | TAUGHT)
    assert message in refusal(rows, capsys, "--dry-run")


@pytest.mark.parametrize(
    "loss", ["SimCSELoss", "JTCSELoss", "RankCSELoss", "LSRNSLoss", "MSELoss", "EmbedDistillLoss"]
)
def test_a_loss_over_sentences_is_refused_on_pairs(rows, capsys, loss):
    write(rows, stage({"type": loss}))
    told = refusal(rows, capsys, "--dry-run")
    assert (
        f"stages[0].data.pairs: expected sentences for {loss}, found pairs. Give 'train' instead."
        in told
    )
    assert told.count("expected ") == 1


@pytest.mark.parametrize(
    "block",
    [
        stage({"type": "CoSENTLoss"}),
        stage({"type": "AnglELoss"}),
        cross({"type": "CrossEncoderCoSENTLoss"}),
    ],
    ids=lambda block: block["loss"]["type"],
)
def test_one_pair_has_no_order(rows, capsys, block):
    write(rows, block, per_device_train_batch_size=1)
    told = refusal(rows, capsys, "--dry-run")
    assert (
        f"{block['loss']['type']} compares the sentences of a batch, found batches of 1; raise"
        in told
    )


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            {"augment": {"pivots": ["fr"], "mode": "pair"}},
            "stages[0].augment.mode: expected 'replace' for SimCSELoss, which makes both views "
            "itself, found 'pair'.",
        ),
        (
            {"loss": {"type": "MultipleNegativesRankingLoss"}},
            "stages[0].loss.type: expected a loss that makes both views itself, found "
            "MultipleNegativesRankingLoss. "
            "Choose SimCSELoss, or add 'views', or 'augment' with 'mode: pair'.",
        ),
    ],
)
def test_a_loss_and_the_views_it_does_not_take_are_refused(rows, capsys, block, message):
    write(rows, ENCODER | block)
    assert message in refusal(rows, capsys, "--dry-run")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"loss": {"type": "SimCSELoss", "mini_batch_size": 9}},
            "stages[0].loss.mini_batch_size: expected at most the batch, 8, found 9. Lower it, or "
            "raise "
            "args.per_device_train_batch_size.",
        ),
        (
            {
                "loss": {"type": "SimCSELoss", "mini_batch_size": 4},
                "args": {"gradient_checkpointing": True},
            },
            "stages[0].args.gradient_checkpointing: expected false beside the loss's mini-batches, "
            "which are encoded "
            "twice too, found true. Remove it.",
        ),
    ],
)
def test_mini_batches_that_do_not_fit_are_refused_where_they_are_written(
    rows, capsys, more, message
):
    write(rows, ENCODER | more)
    assert message in refusal(rows, capsys, "--dry-run")


@pytest.mark.usefixtures("unrehearsed")
def test_a_stage_trains_in_mini_batches_and_logs_its_terms(rows):
    loss = {
        "type": "RankCSELoss",
        "distillation_weight": 0,
        "mini_batch_size": 4,
        "matryoshka_dims": [32, 8],
    }
    write(rows, ENCODER | {"loss": loss}, logging_steps=1)
    assert train(rows) == 0
    (record,) = results(rows)["stages"]
    entries = [entry for entry in record["log"] if "loss" in entry]
    assert len(entries) > 1 and entries[0]["nce"] != entries[1]["nce"]
    for entry in entries:
        assert entry["consistency"] > 0
        assert entry["loss"] == pytest.approx(entry["nce"] + entry["consistency"], rel=1e-3)
