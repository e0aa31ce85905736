"""st-train init: what it writes goes, and what it needs to know it asks for or names."""

import io
import sys
from pathlib import Path

import pytest

from st_jtcse.cli.train import main
from st_jtcse.recipe.load import load_recipe


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
        assert capsys.readouterr().out == f"Wrote sub/{have}.yaml.\nNext: st-train sub/{have}.yaml --dry-run\n"
        found[have] = load_recipe(str(place / "sub" / f"{have}.yaml"))
    assert [loaded.recipe.name for loaded in found.values()] == list(asked)
    stages = {have: loaded.stages[-1] for have, loaded in found.items()}
    assert Path(stages["sentences"].data.train[0].file).samefile(place / "my.txt")
    assert Path(stages["pairs"].data.pairs[0].file).samefile(place / "pairs.jsonl")
    assert Path(stages["pairs"].evaluate.dev.file).samefile(place / "pairs.jsonl")
    assert found["model"].stages[0].model.base == "some/model" and found["paper"].recipe.method == "JTCSE"


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
        (["--have", "paper", "--recipe", "jtcse"], "expected the name of a bundled recipe, found 'jtcse'"),
        (["my.txt", "--have", "sentences", "--data", "my.txt"], "my.txt exists already; choose another file."),
    ],
)
def test_what_it_cannot_know_is_told_and_nothing_is_written(place, capsys, monkeypatch, flags, told):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    before = sorted(place.iterdir())
    assert main(["init", *flags]) == 2
    assert told.format(place=place) in capsys.readouterr().err and sorted(place.iterdir()) == before
