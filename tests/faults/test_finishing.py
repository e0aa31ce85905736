"""A stage without dev, of every kind of loss, killed while its finished form is made."""

import pytest
from conftest import make_labelled, write_rows

from faults.conftest import (
    ENCODER,
    WITHOUT_DEV,
    Undisturbed,
    check_what_looks_finished,
    sampled,
    told,
    weights,
    write_project,
)

PLAIN = {"base": "./a", "pooling": "cls"}
TWIN = {"towers": ["./a", "./b"], "pooling": "cls", "dropout": 0.2}
TAUGHT = {"teachers": [{"model": "./b", "pooling": "mean"}]}
SCORED = {"data": {"pairs": "dev.jsonl", "labels": "scores", "score_range": [0, 5]}}
CLASSES = {"data": {"pairs": "classes.jsonl", "labels": "classes"}}
SETTINGS = {
    "SimCSELoss": {},
    "SimCSELoss with a training head": {"model": {**PLAIN, "training_head": True}},
    "SimCSELoss of mean pooling": {"model": {"base": "./a", "pooling": "mean"}},
    "SimCSELoss, fresh": {"model": {**PLAIN, "fresh": {"num_hidden_layers": 1}}},
    "JTCSELoss": {"model": TWIN},
    "JTCSELoss, local": {"model": {**TWIN, "cross_residual": "local"}},
    "JTCSELoss, TNCSE": {
        "model": {**TWIN, "cross_attention_every": None},
        "loss": {"cross_weight": 0.0},
    },
    "MSELoss": TAUGHT,
    "EmbedDistillLoss": {**TAUGHT, "loss": {"projection_dim": 8}},
    "RankCSELoss": TAUGHT,
    "LSRNSLoss": TAUGHT,
    "CoSENTLoss": SCORED,
    "CosineSimilarityLoss": SCORED,
    "AnglELoss": SCORED,
    "OnlineContrastiveLoss": CLASSES,
    "SoftmaxLoss": {**CLASSES, "loss": {"num_labels": 2, "embedding_dimension": 8}},
    "CrossEncoderCoSENTLoss": {**SCORED, "model": {"cross_encoder": "./a"}},
    "SimCSELoss in half epochs": {"args": {"max_steps": 6, "save_steps": 3}},
}


@pytest.mark.parametrize("setting", sampled(SETTINGS, "SimCSELoss", "EmbedDistillLoss"))
def test_a_stage_killed_while_it_finishes_resumes_to_the_same_bytes(runs, tmp_path, setting, every):
    changes = SETTINGS[setting]
    loss = {"type": setting.partition(",")[0].split()[0], **changes.get("loss", {})}
    stage = {**ENCODER, **changes, "loss": loss, "args": WITHOUT_DEV | changes.get("args", {})}
    project = write_project(tmp_path / "project", [stage], evaluate={})
    rows = [
        {"sentence1": row["text"], "sentence2": row["text"], "label": row["label"]}
        for row in make_labelled(24, 3)
    ]
    write_rows(project / "classes.jsonl", rows)
    straight = Undisturbed(runs, project)
    moments = [
        n for n, moment in enumerate(straight.moments, 1) if "run/.encoder.new" in moment["path"]
    ]
    for at in every((moments[0], moments[len(moments) // 2], moments[-1]), 3, 1):
        killed = straight.back_to(at)
        check_what_looks_finished(killed)
        ended = runs(killed, "--resume")
        assert ended.status == 0, ended.said
        assert weights(killed) == weights(straight.folder)
        assert told(killed) == told(straight.folder)
