"""The bundled recipes as users meet them: listed by need, shown whole, copied with all that they
read, and extended.
"""

import io
import os
import sys
from pathlib import Path

import pytest
import yaml

from st_jtcse import bundled
from st_jtcse.cli.train import main
from st_jtcse.recipe.first_recipes import copy
from st_jtcse.recipe.load import load_recipe, resolved_yaml
from st_jtcse.training.stage_inputs import is_local, load_inputs


def without_places(recipe):
    return recipe.model_dump(exclude={"name", "output_dir", "data", "evaluate", "stages"})


@pytest.mark.parametrize("name", bundled.recipes())
def test_a_copy_is_the_recipe_under_its_own_name_and_finds_its_data(name, tmp_path):
    copy(name, tmp_path / "mine.yaml")
    copied, original = load_recipe(str(tmp_path / "mine.yaml")), load_recipe(name)
    assert copied.recipe.name == "mine" and copied.recipe.output_dir == "runs/mine"
    assert without_places(copied.recipe) == without_places(original.recipe)
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
        "You have graded pairs",
        "You have sentences and a good model",
        "You reproduce a paper",
    ]
    assert {line.split()[0] for line in lines if line not in groups} == bundled.recipes().keys()
    at, within = -1, {}
    for line in lines:
        at += line in groups
        within[line.split()[0]] = at
    found = {
        name: within[name]
        for name in ("quickstart", "cosent-cross-mini", "lsrns-ranks-mini", "lsrns-roberta")
    }
    assert found == {
        "quickstart": 0,
        "cosent-cross-mini": 1,
        "lsrns-ranks-mini": 2,
        "lsrns-roberta": 3,
    }
    (line,) = (line for line in lines if line.startswith("  tncse-roberta "))
    assert "sentences; the Hub, a GPU, [translation]  TNCSE Table 1, TNCSE-RoBERTa with" in line


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
    assert names == {*ways, "rankcse-bert-uc"}
    assert main(["--list", "bananas"]) == 2
    assert (
        capsys.readouterr().err
        == "--list: no bundled recipe mentions 'bananas'; st-train --list shows all.\n"
    )


def test_a_recipe_is_shown_whole(tmp_path, capsys):
    assert main(["--show", "tncse-mini", "--set", "seed=9"]) == 0
    shown = capsys.readouterr().out
    assert shown == resolved_yaml(load_recipe("tncse-mini", ["seed=9"]).recipe)
    assert (
        "extends" not in yaml.safe_load(shown) and yaml.safe_load(shown)["args"]["max_steps"] == 100
    )


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to stand in, with data."""
    (tmp_path / "my.txt").write_text("one\ntwo\n")
    (tmp_path / "pairs.jsonl").write_text('{"sentence1": "a", "sentence2": "b", "score": 1}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_beginning_writes_a_recipe_that_loads_and_says_what_to_do_next(place, capsys):
    (place / "sub").mkdir()
    asked = {
        "sentences": ["--data", "my.txt"],
        "pairs": ["--data", str(place / "pairs.jsonl"), "--dev", "pairs.jsonl"],
        "model": ["--data", "my.txt", "--model", "some/model"],
        "paper": ["--recipe", "jtcse-bert"],
    }
    found = {}
    for have, flags in asked.items():
        assert main(["init", f"sub/{have}.yaml", "--have", have, *flags]) == 0
        assert (
            capsys.readouterr().out
            == f"Wrote sub/{have}.yaml.\nNext: st-train sub/{have}.yaml --dry-run\n"
        )
        found[have] = load_recipe(str(place / "sub" / f"{have}.yaml"))
    assert [loaded.recipe.name for loaded in found.values()] == list(asked)
    stages = {have: loaded.stages[-1] for have, loaded in found.items()}
    assert Path(stages["sentences"].data.train[0].file).samefile(place / "my.txt")
    assert Path(stages["pairs"].data.pairs[0].file).samefile(place / "pairs.jsonl")
    assert Path(stages["pairs"].evaluate.dev.file).samefile(place / "pairs.jsonl")
    assert (
        found["model"].stages[0].model.base == "some/model"
        and found["paper"].recipe.method == "JTCSE"
    )


def test_on_a_terminal_it_asks(place, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("nothing\nmodel\nmy.txt\nsome/model\n"))
    assert main(["init", "mine.yaml"]) == 0
    assert "What do you have?" in capsys.readouterr().err
    assert (place / "mine.yaml").read_text().endswith("model: some/model\ndata:\n  train: my.txt\n")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "answer by options: st-train init FILE --have sentences|pairs|model|paper"),
        (["--have", "model", "--data", "my.txt"], "answer by options"),
        (["--have", "sentences", "--data", "no.txt"], "no.txt is not in {place}; check the path."),
        (
            ["--have", "paper", "--recipe", "jtcse"],
            "expected the name of a bundled recipe, found 'jtcse'",
        ),
        (
            ["my.txt", "--have", "sentences", "--data", "my.txt"],
            "my.txt exists already; choose another file.",
        ),
    ],
)
def test_what_it_cannot_know_is_told_and_nothing_is_written(
    place, capsys, monkeypatch, flags, told
):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    before = sorted(place.iterdir())
    assert main(["init", *flags]) == 2
    assert told.format(place=place) in capsys.readouterr().err and sorted(place.iterdir()) == before
