"""A recipe's choices decide which of its stages a run has."""

import pytest

from st_jtcse.cli.train import main
from st_jtcse.errors import UserError
from st_jtcse.recipe.load import load_recipe, resolved_yaml

RECIPE = """\
name: demo
effort: seconds
purpose: topics
stages:
  - name: start
    model: {base: embedded}
    loss: null
  - name: thorough
    model: {base: "stage:start"}
    loss: null
    only: {effort: [minutes, full]}
  - name: search
    model: {base: "stage:start"}
    loss: null
    only: {effort: [full], purpose: [search]}
  - name: last
    model: {base: "stage:start"}
    loss: null
"""


@pytest.fixture
def recipe(tmp_path):
    """Writes the recipe, with some of its text replaced."""

    def write(old="", new=""):
        path = tmp_path / "r.yaml"
        path.write_text(RECIPE.replace(old, new))
        return str(path)

    return write


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], ["start", "last"]),
        (["effort=minutes"], ["start", "thorough", "last"]),
        (["effort=full"], ["start", "thorough", "last"]),
        (["effort=full", "purpose=search"], ["start", "thorough", "search", "last"]),
        (["effort=seconds", "purpose=search"], ["start", "last"]),
    ],
)
def test_the_run_has_the_stages_that_its_choices_name(recipe, tmp_path, changes, expected):
    loaded = load_recipe(recipe(), changes)
    assert [stage.name for stage in loaded.stages] == expected
    again = tmp_path / "again.yaml"
    again.write_text(resolved_yaml(loaded.recipe))
    assert load_recipe(str(again)).recipe == loaded.recipe
    assert load_recipe(str(again)).stages == loaded.stages
    # What is written has the others too, for another choice.
    assert len(load_recipe(str(again), ["effort=full", "purpose=search"]).stages) == 4


def test_the_plan_shows_the_stages_of_the_run_and_names_the_others(recipe, capsys):
    assert main([recipe(), "--set", "effort=minutes", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "thorough" in told and "last" in told
    assert "effort: minutes, purpose: topics; without the stage search" in " ".join(told.split())


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "effort: seconds\n",
            "",
            "only.effort: expected the recipe to choose 'effort', found none. Add 'effort' to its",
        ),
        ("seconds", "hours", "effort: expected one of 'seconds', 'minutes', 'full', found 'hours'"),
        (
            "[full], purpose",
            "[fully], purpose",
            "effort[0]: expected one of 'seconds', 'minutes', 'full'",
        ),
        (
            'last\n    model: {base: "stage:start"}',
            'last\n    model: {base: "stage:thorough"}',
            "expected an earlier stage, found 'stage:thorough', a stage that its 'only' leaves out",
        ),
        ("only: {effort: [minutes, full]}", "only: {}", ""),
        (
            "only: {effort: [full], purpose: [search]}",
            "only: {effort: [full]}",
            "purpose: expected stages whose 'only' names it, found none. Remove it.",
        ),
    ],
)
def test_choices_that_do_not_fit_the_stages_are_refused(recipe, old, new, told):
    if not told:  # Nothing said is no choice.
        assert "thorough" in [stage.name for stage in load_recipe(recipe(old, new)).stages]
        return
    with pytest.raises(UserError) as caught:
        load_recipe(recipe(old, new))
    assert len(caught.value.faults) == 1 and told in caught.value.faults[0]


def test_a_choice_that_leaves_no_stage_is_refused(tmp_path):
    path = tmp_path / "r.yaml"
    stage = "{name: a, model: {base: embedded}, loss: null, only: {effort: [full]}}"
    path.write_text(f"name: demo\neffort: seconds\nstages: [{stage}]\n")
    with pytest.raises(UserError, match="expected a stage for 'effort: seconds', found none"):
        load_recipe(str(path))


def test_the_text_decides_what_a_recipe_is_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("one\n")
    (tmp_path / "rows.jsonl").write_text('{"sentence": "one"}\n')
    (tmp_path / "passages.jsonl").write_text('{"_id": "a.md#1", "text": "one"}\n')
    (tmp_path / "docs" / "deeper").mkdir(parents=True)
    (tmp_path / "docs" / "deeper" / "a.md").write_text("one")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_text("one")
    for train, purpose in {
        "lines.txt": "topics",
        "rows.jsonl": "topics",
        "images": "topics",
        "docs": "search",
        "docs/**/*.md": "search",
        "passages.jsonl": "search",
        "[{file: docs}, {file: lines.txt}]": "search",
    }.items():
        loaded = load_recipe("adapt", [f"data.train={train}"])
        assert loaded.recipe.purpose == purpose, train
    names = {stage.name for stage in load_recipe("adapt", ["data.train=docs"]).stages}
    assert names == {"start", "searched"}
    chosen = load_recipe("adapt", ["data.train=docs", "purpose=topics"])
    assert chosen.recipe.purpose == "topics"
    assert load_recipe("adapt", ["data.train=lines.txt", "purpose=search"]).stages[-1].name == (
        "searched"
    )
