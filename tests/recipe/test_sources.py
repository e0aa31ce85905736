"""The first row of a table tells of its columns what reading all of it would."""

import json

import pytest

from st_jtcse.errors import UserError
from st_jtcse.recipe.load import read_recipe
from st_jtcse.recipe.sources import check_columns
from st_jtcse.training.stage_inputs import load_inputs

ROWS = [
    {"sentence1": "a red door", "sentence2": "a door", "score": 4.5, "label": 1},
    {"sentence1": "a blue sea", "sentence2": "a fish", "score": 0.5, "label": 0},
]
TEXT = "".join(f"sentence number {number}\n" for number in range(80))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "faq.csv").write_text("Frage;Antwort;Nr\nWo?;Hier.;1\nWann?;Jetzt.;2\n")
    (tmp_path / "list.csv").write_text("sentence,page\nOne text,1\nTwo texts,2\n")
    (tmp_path / "my.txt").write_text(TEXT)
    (tmp_path / "rows.json").write_text("[]\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "bare.csv").write_text("sentence1,sentence2,score\n")
    (tmp_path / "broken.jsonl").write_text("no JSON\n")
    (tmp_path / "binary.csv").write_bytes(b"a\0b\n")
    return tmp_path


def stages(files, recipe, overrides):
    given = [override.replace("@", f"{files}/") for override in overrides]
    return read_recipe(recipe, given).stages


PAIRS = "data.pairs=@pairs.jsonl"
FAULTY = {
    "labelled": ("cosent-mini", ["data.pairs=@faq.csv"]),
    "named": ("cosent-mini", [PAIRS, "data.pairs.columns=[a,b,score]"]),
    "called": ("cosent-mini", [PAIRS, "data.pairs.columns={sentence1: a, sentence2: b, score: c}"]),
    "of another kind": ("cosent-mini", [PAIRS, "data.labels=none"]),
    "text": ("cosent-mini", ["data.pairs=@my.txt"]),
    "ending": ("cosent-mini", ["data.pairs=@rows.json"]),
    "empty": ("cosent-mini", ["data.pairs=@empty.csv"]),
    "no JSON": ("cosent-mini", ["data.pairs=@broken.jsonl"]),
    "binary": ("cosent-mini", ["data.pairs=@binary.csv"]),
    "sentences": ("quickstart", ["data.train=@faq.csv"]),
    "sentences named": ("quickstart", ["data.train={file: @list.csv, columns: [text]}"]),
    "a number": ("quickstart", ["data.train={file: @pairs.jsonl, columns: [score]}"]),
    "set": ("cosent-mini", [PAIRS, "evaluate.dev=@faq.csv"]),
    "set named": ("cosent-mini", [PAIRS, "evaluate.dev={file: @pairs.jsonl, columns: [a, b, c]}"]),
    "two": ("cosent-mini", [PAIRS, "evaluate.dev={file: @pairs.jsonl, columns: [a, b]}"]),
    "set called": ("cosent-mini", [PAIRS, "evaluate.test.x={file: @faq.csv, columns: {query: q}}"]),
    "without a row": ("cosent-mini", [PAIRS, "evaluate.dev=@bare.csv"]),
}


@pytest.mark.parametrize("case", FAULTY)
def test_a_fault_is_told_as_reading_all_would_tell_it(files, case):
    found = stages(files, *FAULTY[case])
    with pytest.raises(UserError) as all_read:
        load_inputs(found)
    with pytest.raises(UserError) as first_read:
        check_columns(found)
    assert first_read.value.faults == all_read.value.faults
    assert len(first_read.value.faults) == 1


RIGHT = {
    "labelled": ("cosent-mini", [PAIRS]),
    "called": ("cosent-mini", [PAIRS, "data.pairs.columns={sentence1: sentence2, score: score}"]),
    "classes": ("quickstart", ["data.train={file: @pairs.jsonl, columns: [sentence1, sentence2]}"]),
    "table of sentences": ("quickstart", ["data.train=@list.csv"]),
    "general": ("quickstart", ["data.train=@my.txt", "evaluate.general.plain=@my.txt"]),
    "bundled": ("adapt", ["data.train=@my.txt"]),
    # Told where it is read as a whole.
    "a later row": ("cosent-mini", ["data.pairs=@later.jsonl"]),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_the_first_row_does_not_tell_is_left_alone(files, case):
    lines = [json.dumps(ROWS[0]), json.dumps({"sentence1": "a"})]
    (files / "later.jsonl").write_text("\n".join(lines))
    check_columns(stages(files, *RIGHT[case]))


def test_only_tables_are_looked_at(files, caplog):
    """Nothing is said of a delimiter twice, and folders and Parquet are left to their libraries."""
    caplog.set_level("INFO")
    (files / "notes").mkdir()
    (files / "notes" / "one.md").write_text("# One\n\nSome words of text.\n")
    (files / "no.parquet").write_text("no Parquet")
    columns = "columns: [Frage, Antwort]"
    for given in ("@notes", "@no.parquet", f"{{file: @faq.csv, {columns}}}"):
        check_columns(stages(files, "quickstart", [f"data.train={given}"]))
    assert caplog.messages == []
