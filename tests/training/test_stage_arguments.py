"""A stage's arguments, completed by what follows from it."""

import pytest

from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.stage_arguments import training_arguments


def arguments_of(folder, **args):
    model, loss = {"base": "embedded"}, {"type": "SimCSELoss"}
    stage = StageSpec.model_validate({"name": "one", "model": model, "loss": loss, "args": args})
    return training_arguments(stage, 1, folder)


@pytest.mark.parametrize("given", [None, "none", []])
def test_reports_go_nowhere_unless_a_place_is_named(tmp_path, given):
    assert arguments_of(tmp_path, report_to=given).report_to == []


@pytest.mark.parametrize(
    ("given", "every"),
    [
        ({"eval_steps": 5}, 5),
        ({"eval_steps": 5, "logging_steps": 2}, 5),
        ({"logging_steps": 2}, 2),
        ({"eval_steps": None, "logging_steps": 2}, 2),
        ({"eval_steps": None}, 500),
    ],
)
def test_each_evaluation_has_its_checkpoint(tmp_path, given, every):
    found = arguments_of(tmp_path, eval_strategy="steps", **given)
    assert (found.eval_steps, found.save_steps) == (every, every)
