"""The bundled recipes as users meet them: listed by need, shown whole, copied with all that they
read, and extended.
"""

import os
import re
from pathlib import Path

import pytest
import yaml

from st_jtcse import bundled
from st_jtcse.cli.train import main
from st_jtcse.recipe.beginnings import first_steps
from st_jtcse.recipe.first_recipes import copy
from st_jtcse.recipe.load import load_recipe, resolved_yaml
from st_jtcse.training.stage_inputs import is_local, load_inputs


def without_places(recipe):
    return recipe.model_dump(exclude={"name", "output_dir", "data", "evaluate", "stages", "sweep"})


@pytest.mark.parametrize("name", bundled.recipes())
def test_a_copy_is_the_recipe_under_its_own_name_and_finds_its_data(name, tmp_path):
    copy(name, tmp_path / "mine.yaml")
    copied, original = load_recipe(str(tmp_path / "mine.yaml")), load_recipe(name)
    assert copied.recipe.name == "mine" and copied.recipe.output_dir == "runs/mine"
    assert without_places(copied.recipe) == without_places(original.recipe)
    here, there = str(tmp_path), str(bundled.folder("recipes"))
    assert str(copied.recipe.sweep).replace(here, there) == str(original.recipe.sweep)
    local = [[stage for stage in loaded.stages if is_local(stage)] for loaded in (copied, original)]
    read, wanted = (
        {key: found.hashes for key, found in load_inputs(stages).items()} for stages in local
    )
    assert read == wanted and len(wanted) == (
        len(original.stages) if "[embedded]" in original.recipe.needs else 0
    )
    lines = (tmp_path / "mine.yaml").read_text().splitlines()
    assert lines[0].startswith(f"# What: a copy of the bundled {name}: ")
    assert sum(line.startswith(f"# Run: st-train {tmp_path / 'mine.yaml'}") for line in lines) == 1


def test_a_copy_says_what_it_wrote_and_what_comes_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["--copy", "simcse-mini", "my own 1.yaml"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Wrote my own 1.yaml, and the data that it reads:",
        "  quickstart/sentences.txt",
        "  quickstart/pairs.dev.jsonl",
        "  quickstart/pairs.test.jsonl",
        "Edit it, then check it: st-train 'my own 1.yaml' --dry-run",
    ]
    assert load_recipe("my own 1.yaml").recipe.name == "my-own-1"
    # A number is a name too, data that lie there already are taken, and what is inherited brings
    # none.
    assert (
        main(["--copy", "quickstart", "2024.yaml"])
        == main(["--copy", "tncse-mini", "other.yaml"])
        == 0
    )
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "Wrote other.yaml.",
        "Edit it, then check it: st-train other.yaml --dry-run",
    ]
    assert load_recipe("2024.yaml").recipe.name == "2024"


def test_a_copy_replaces_nothing_and_leaves_nothing_half_done(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()
    (tmp_path / "quickstart" / "sentences.txt").write_text("mine\n")
    assert main(["--copy", "quickstart", "my.yaml"]) == 2
    told = (
        "--copy: the recipe reads quickstart/sentences.txt, and quickstart/sentences.txt is "
        "another file; choose"
    )
    assert told in capsys.readouterr().err and os.listdir() == ["quickstart"]
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "quickstart").write_text("in the way\n")
    assert main(["--copy", "quickstart", "file/my.yaml"]) == 2
    assert os.listdir("file") == ["quickstart"]
    assert main(["--copy", "jtcse-mimi", "x.yaml"]) == 2
    assert "Did you mean 'jtcse-mini'?" in capsys.readouterr().err


def test_recipes_are_listed_by_what_they_need(capsys):
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    groups = [line for line in lines if not line.startswith(" ")]
    assert [group.partition(",")[0] for group in groups] == [
        "You have sentences",
        "You have texts with labels",
        "You have triplets",
        "You have questions with answers",
        "You have graded pairs",
        "You have sentences and a good model",
        "You reproduce a paper",
    ]
    assert {line.split()[0] for line in lines if line not in groups} == bundled.recipes().keys()
    at, within = -1, {}
    for line in lines:
        at += line in groups
        within[line.split()[0]] = at
    some = {
        "quickstart": 0,
        "labels": 1,
        "triplets": 2,
        "questions": 3,
        "cosent-cross-mini": 4,
        "lsrns-ranks-mini": 5,
        "lsrns-roberta": 6,
    }
    assert some.items() <= within.items()
    (line,) = (line for line in lines if line.startswith("  tncse-roberta "))
    cells = re.split(" {2,}", line.strip())
    assert cells[1] == "sentences; the Hub, a GPU, [translation]"
    assert cells[2].startswith("TNCSE Table 1, TNCSE-RoBERTa with")


def test_a_word_leaves_the_recipes_that_speak_of_it(capsys):
    assert main(["--list", "rankCSE"]) == 0
    names = {
        line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith(" ")
    }
    ways = [
        f"rankcse-{way}-{size}"
        for way in ("cosent", "listmle", "listnet")
        for size in ("mini", "bert")
    ]
    assert names == {*ways, "rankcse-bert-uc", "rankcse-roberta-uc", "rankcse-sickr-bert"}


SAID = {
    "search": "adapt questions",
    "folder": "adapt",
    "html": "adapt",
    "retrieval": "adapt questions",
    "RAG": "adapt questions",
    "classification": "labels adapt",
    "labels": "labels adapt",
    "question": "questions",
    "query": "questions",
    "logs": "questions",
    "csv": "adapt questions triplets labels cosent-mini",
    "domain": "adapt",
    "triplets": "triplets",
}


@pytest.mark.parametrize(("word", "names"), SAID.items())
def test_what_people_say_leads_somewhere(word, names, capsys):
    assert main(["--list", word]) == 0
    lines = capsys.readouterr().out.splitlines()
    recipes = [line.split()[0] for line in lines if line.startswith(" ")]
    assert set(names.split()) <= set(recipes)
    # What the word leads to comes before what only mentions it.
    assert recipes[0] in names.split()


def test_a_word_that_leads_nowhere_shows_where_to_begin(capsys):
    assert main(["--list", "bananas"]) == 2
    told = capsys.readouterr()
    assert told.err == "--list: no bundled recipe mentions 'bananas'; st-train --list shows all.\n"
    page = (Path(__file__).parents[2] / "docs" / "which-loss.md").read_text()
    for have, command in first_steps():
        assert command in told.out and f"| {have} | `{command}` |" in page


def test_a_recipe_is_shown_whole(tmp_path, capsys):
    assert main(["--show", "tncse-mini", "--set", "seed=9"]) == 0
    shown = capsys.readouterr().out
    assert shown == resolved_yaml(load_recipe("tncse-mini", ["seed=9"]).recipe)
    assert (
        "extends" not in yaml.safe_load(shown) and yaml.safe_load(shown)["args"]["max_steps"] == 100
    )
