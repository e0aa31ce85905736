"""st-train init: a recipe for what one has, with one's own columns."""

import io
import json
import sys
from pathlib import Path

import pytest
from conftest import make_model, make_sentences, save_encoder

from st_jtcse import embedded
from st_jtcse.cli.train import main
from st_jtcse.recipe.beginnings import BEGINNINGS
from st_jtcse.recipe.load import load_recipe

FAQ = "Nr;Question;Reply\n" + "".join(
    f"{at};{left};{right}\n"
    for at, (left, right) in enumerate(zip(make_sentences(40, seed=1), make_sentences(40, seed=2)))
)


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to stand in, with data whose columns are called as people call them."""
    monkeypatch.chdir(tmp_path)
    texts = make_sentences(40, seed=3)
    (tmp_path / "my.txt").write_text("one\ntwo\n")
    (tmp_path / "faq.csv").write_text(FAQ)
    graded = [{"a": text, "b": text[::-1], "gold": at % 5 / 4} for at, text in enumerate(texts)]
    write_lines(tmp_path / "graded.jsonl", graded)
    labelled = [{"Utterance": text, "intent": "ab"[at % 2]} for at, text in enumerate(texts)]
    write_lines(tmp_path / "intents.jsonl", labelled)
    three = [
        {"query": text, "pos": text[::-1], "hard-negative": texts[at - 1]}
        for at, text in enumerate(texts)
    ]
    write_lines(tmp_path / "three.jsonl", three)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.md").write_text("# One\n\nA text.\n")
    return tmp_path


# By what one has: its options, and the columns that are found.
HAVE = {
    "texts": (["--data", "my.txt"], None),
    "documents": (["--data", "texts"], None),
    "pairs": (["--data", "graded.jsonl", "--dev", "graded.jsonl"], ["a", "b", "gold"]),
    "questions": (["--data", "faq.csv", "--columns", "Question,Reply"], ["Question", "Reply"]),
    "triplets": (["--data", "three.jsonl"], ["query", "pos", "hard-negative"]),
    "labels": (["--data", "intents.jsonl", "--dev", "intents.jsonl"], ["Utterance", "intent"]),
    "logs": (
        ["--data", "faq.csv", "--columns", "Question, Reply", "--dev", "faq.csv"],
        ["Question", "Reply"],
    ),
    "paper": (["--recipe", "jtcse-bert"], None),
}
DEV = {
    "labels": {"text": "Utterance", "label": "intent"},
    "logs": {"query": "Question", "relevant": "Reply"},
    "pairs": {"sentence1": "a", "sentence2": "b", "score": "gold"},
}


@pytest.mark.parametrize("have", BEGINNINGS)
def test_each_beginning_writes_a_recipe_with_the_columns_of_the_file(have, place, capsys):
    (place / "sub").mkdir()
    options, columns = HAVE[have]
    file = f"sub/{have}.yaml"
    assert main(["init", file, "--have", have, *options, "--model", "some/model"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"Wrote {file}." and told[-1] == f"Next: st-train {file} --dry-run"
    loaded = load_recipe(str(place / file))
    assert loaded.recipe.name == have
    stage = loaded.stages[0] if have in ("texts", "documents") else loaded.stages[-1]
    if have == "paper":
        assert loaded.recipe.method == "JTCSE"
        return
    (source,) = stage.data.sources
    assert Path(source.file).samefile(place / options[1])
    assert source.columns == columns and stage.model.base == "some/model"
    if "--dev" in options:
        assert stage.evaluate.dev.columns == DEV[have]
    elif have in ("questions", "triplets"):
        # The bundled recipe's own set would say nothing about theirs.
        assert stage.evaluate.dev is None
        assert told[-2].startswith("Nothing measures the result")
    if have == "pairs":
        assert stage.data.score_range == stage.evaluate.score_range == (0.0, 1.0)


@pytest.mark.parametrize("have", ["questions", "triplets", "labels", "pairs"])
def test_what_was_written_is_trained_on(have, place, capsys, monkeypatch):
    shape = {"num_hidden_layers": 1, "max_position_embeddings": 160}
    encoder = save_encoder(place / "encoder", 1, **shape)
    make_model(encoder, "mean").save_pretrained("tiny", create_model_card=False)
    monkeypatch.setattr(embedded, "folder", lambda: place / "tiny")
    options, _ = HAVE[have]
    assert main(["init", "mine.yaml", "--have", have, *options]) == 0
    small = ["per_device_train_batch_size=8", "max_steps=2", "use_cpu=true", "bf16=false"]
    changes = [part for change in small for part in ("--set", f"args.{change}")]
    assert main(["mine.yaml", "--output-dir", "run", *changes]) == 0
    (record,) = json.loads((place / "run" / "results.json").read_text())["stages"]
    assert record["steps"] == 2
    assert (place / "run" / record["name"] / "modules.json").is_file()
    told = capsys.readouterr().err
    # That a file is parted by semicolons is said.
    assert ("faq.csv: semicolons part the cells" in told) == (have == "questions")


def test_on_a_terminal_it_asks_for_what_the_names_of_columns_do_not_say(place, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("nothing\nquestions\nfaq.csv\nReply\n"))
    assert main(["init", "mine.yaml"]) == 0
    asked = capsys.readouterr().err
    assert "What do you have?" in asked and "Which column holds the answer?" in asked
    (source,) = load_recipe("mine.yaml").stages[-1].data.sources
    assert source.columns == ["Question", "Reply"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "answer by options: st-train init FILE --have KIND"),
        (["--have", "labels"], "answer by options"),
        (["--have", "texts", "--data", "no.txt"], "no.txt is not in {place}; check the path."),
        (["--have", "texts", "--data", "texts"], "texts is a folder; name a file in it, or say"),
        (
            ["--have", "questions", "--data", "faq.csv"],
            "which of the columns Nr, Reply holds the answer is not clear; name them by --columns",
        ),
        (
            ["--have", "questions", "--data", "faq.csv", "--columns", "Question,Answer"],
            "--columns: faq.csv has no column 'Answer', only Nr, Question, Reply; correct it.",
        ),
        (
            ["--have", "questions", "--data", "faq.csv", "--columns", "Question"],
            "--columns: expected 2 (question, answer), found",
        ),
        (["--have", "labels", "--data", "my.txt"], "my.txt: expected columns (text, label), found"),
        (
            ["--have", "pairs", "--data", "faq.csv", "--columns", "Question,Reply,Question"],
            "faq.csv: no number in 'Question'; name the column of the scores.",
        ),
        (
            ["--have", "paper", "--recipe", "jtcse"],
            "expected the name of a bundled recipe, found 'jtcse'",
        ),
        (
            ["my.txt", "--have", "texts", "--data", "my.txt"],
            "my.txt exists already; choose another file.",
        ),
    ],
)
def test_what_it_cannot_know_is_told_and_nothing_is_written(
    place, capsys, monkeypatch, options, told
):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    before = sorted(place.iterdir())
    assert main(["init", *options]) == 2
    assert told.format(place=place) in capsys.readouterr().err and sorted(place.iterdir()) == before
