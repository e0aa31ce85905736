"""A stage that could take no step is refused, and none that took none is saved as trained."""

import json

import pytest
from conftest import make_sentences
from datasets import Dataset
from processes import run_two
from test_run import refusal, train
from test_stages import ENCODER, project, write  # noqa: F401  # project is a fixture

from st_jtcse.errors import UserError
from st_jtcse.papers.data.translation import RoundTrip
from st_jtcse.recipe.load import load_recipe
from st_jtcse.training.stage_inputs import load_inputs


def told(project, capsys):  # noqa: F811
    """What is said of a stage that fails before its first step; no model of it is left."""
    assert train(project) == 2
    assert not (project / "run" / "encoder" / "training_results.json").exists()
    return capsys.readouterr().err


def is_refused(project):  # noqa: F811
    return 0 if train(project) == 2 else 1


TOO_FEW = (
    "Stage 'encoder' has 15 training sentences, fewer than one batch of 16 (8 in each of 2 "
    "processes); add sentences or lower args.per_device_train_batch_size, or start fewer processes."
)


def test_what_a_batch_needs_is_the_batch_of_all_processes(project, monkeypatch):  # noqa: F811
    write(project, ENCODER)
    stages = load_recipe(str(project / "recipe.yaml")).stages
    monkeypatch.setattr("st_jtcse.processes.count", lambda: 2)
    sentences = make_sentences(16)
    (project / "text.txt").write_text("\n".join(sentences) + "\n")
    assert len(load_inputs(stages)["encoder"].sentences.dataset) == 16
    (project / "text.txt").write_text("\n".join(sentences[1:]) + "\n")
    with pytest.raises(UserError) as refused:
        load_inputs(stages)
    assert str(refused.value) == TOO_FEW


@pytest.mark.all_faults
def test_two_processes_with_too_little_for_a_batch_of_both_are_refused(project):  # noqa: F811
    (project / "text.txt").write_text("\n".join(make_sentences(15)) + "\n")
    write(project, ENCODER, max_steps=-1, num_train_epochs=1)
    run_two(is_refused, project, folder=project)
    assert all(TOO_FEW in (project / f"said-by-{rank}.txt").read_text() for rank in range(2))
    assert not (project / "run").exists()


@pytest.mark.usefixtures("unrehearsed")
@pytest.mark.parametrize(
    ("steps", "taken"), [({"max_steps": 2}, 2), ({"max_steps": -1, "num_train_epochs": 1}, 1)]
)
def test_accumulated_batches_need_no_more_than_one(project, steps, taken):  # noqa: F811
    (project / "text.txt").write_text("\n".join(make_sentences(9)) + "\n")
    write(project, ENCODER, gradient_accumulation_steps=8, **steps)
    assert train(project) == 0
    (record,) = json.loads((project / "run" / "results.json").read_text())["stages"]
    assert record["steps"] == taken


@pytest.mark.parametrize(
    ("steps", "rehearsed"),
    [({"max_steps": 2}, True), ({"max_steps": -1, "num_train_epochs": 1}, False)],
)
def test_a_batch_sampler_that_makes_no_batch_is_refused(
    project,  # noqa: F811
    capsys,
    request,
    steps,
    rehearsed,
):
    if not rehearsed:
        request.getfixturevalue("unrehearsed")
    pairs = zip(make_sentences(4), make_sentences(4, seed=1))
    lines = [json.dumps({"anchor": one, "positive": other}) + "\n" for one, other in pairs]
    (project / "pairs.jsonl").write_text("".join(lines * 5))
    pairs = {"file": "pairs.jsonl", "columns": ["anchor", "positive"]}
    stage = ENCODER | {
        "loss": {"type": "MultipleNegativesRankingLoss"},
        "data": {"pairs": pairs, "labels": "none"},
    }
    write(project, stage, batch_sampler="no_duplicates", dataloader_drop_last=True, **steps)
    assert "Stage 'encoder' cannot take a step: its training rows make no batch; add rows" in told(
        project, capsys
    )


@pytest.mark.usefixtures("unrehearsed")
def test_labels_of_which_no_batch_is_made_are_refused(project, capsys):  # noqa: F811
    rows = [(text, label) for label, text in enumerate(make_sentences(20))]
    rows += [(text, label) for label, text in enumerate(make_sentences(2, seed=1))]
    lines = [{"text": text, "label": label} for text, label in rows]
    (project / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = {"pairs": {"file": "pairs.jsonl", "columns": ["text", "label"]}, "labels": "classes"}
    stage = ENCODER | {"loss": {"type": "BatchAllTripletLoss"}, "data": data}
    sampler = {"batch_sampler": "group_by_label", "dataloader_drop_last": True}
    write(project, stage, **sampler, max_steps=-1, num_train_epochs=1)
    assert "cannot take a step: its training rows make no batch" in told(project, capsys)


@pytest.mark.usefixtures("unrehearsed")
def test_round_trips_that_leave_too_few_sentences_are_refused(project, capsys, monkeypatch):  # noqa: F811
    # As translators that end most sentences at once.
    few = RoundTrip(Dataset.from_dict({"sentence": make_sentences(7)}), {"fr": {"empty": 33}})
    monkeypatch.setattr("st_jtcse.papers.data.translation.round_trip", lambda *given, **more: few)
    write(project, ENCODER | {"augment": {"pivots": ["fr"]}})
    assert "has 7 training sentences, fewer than one batch of 8" in told(project, capsys)


@pytest.mark.parametrize("never", [{"max_steps": 0}, {"num_train_epochs": 0}])
def test_a_number_of_steps_that_is_none_is_refused(project, capsys, never):  # noqa: F811
    write(project, ENCODER, **never)
    assert f"args.{next(iter(never))}: expected a number" in refusal(project, capsys)
