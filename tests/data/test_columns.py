"""Columns by the user's names, what parts the cells of a file, and data of another kind."""

import json
import logging
from pathlib import Path

import pytest

from st_jtcse.data.labelled import load_labelled
from st_jtcse.data.rows import Source, read_rows
from st_jtcse.data.sentences import load_sentences
from st_jtcse.errors import UserError
from st_jtcse.evaluation.own_sets import load_own_set
from st_jtcse.table_files import columns_of, delimiter_of

CELLS = [["question", "answer, short"], ["how; long?", "two\tdays"], ["where?", "here"]]


def quoted(delimiter, rows=CELLS):
    return "".join(delimiter.join(f'"{cell}"' for cell in row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("first", "delimiter"),
    [
        ("a,b,c", ","),
        ("a;b;c", ";"),
        ("a\tb", "\t"),
        ('"a;b;c",d', ","),
        ('"a,b,c";d', ";"),
        ("sentence", ","),
        ('"say ""a,b,c""";"b"', ";"),
    ],
)
def test_the_first_line_says_what_parts_the_cells(first, delimiter):
    assert delimiter_of(first) == delimiter


@pytest.mark.parametrize(("delimiter", "word"), [(",", None), (";", "semicolons"), ("\t", "tabs")])
def test_csv_is_read_however_its_cells_are_parted_and_that_is_said(
    delimiter, word, tmp_path, caplog
):
    file = tmp_path / "faq.csv"
    file.write_text(quoted(delimiter))
    with caplog.at_level(logging.INFO, logger="st_jtcse"):
        rows = [row.values for row in read_rows(Source(file))]
    assert rows == [dict(zip(CELLS[0], cells)) for cells in CELLS[1:]]
    assert caplog.messages == ([f"{file}: {word} part the cells"] if word else [])
    assert columns_of(file) == ("question", "answer, short")


@pytest.fixture
def faq(tmp_path):
    file = tmp_path / "faq.jsonl"
    lines = [{"question": "a b", "answer": "c", "n": 1}, {"question": "d", "answer": "e f", "n": 2}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_columns_are_read_by_the_names_that_a_file_has_for_them(faq):
    called = (("relevant", "answer"), ("query", "question"))
    own = load_own_set(Source(faq, called=called), "faq")
    assert own.metric == "ndcg@10"
    assert [list(column) for column in own.columns] == [["a b", "d"], ["c", "e f"]]
    rows = load_labelled([Source(faq, called=called[::-1])], "none", (0, 5)).dataset
    assert rows[:] == {"sentence1": ["a b", "d"], "sentence2": ["c", "e f"]}
    sentences = load_sentences([Source(faq, called=(("sentence", "answer"),))])
    assert sentences.dataset["sentence"][:] == ["c", "e f"]
    # One column may stand for two.
    twice = (("anchor", "question"), ("positive", "question"))
    assert load_labelled([Source(faq, called=twice)], "none", (0, 5)).dataset[0] == {
        "sentence1": "a b",
        "sentence2": "a b",
    }


def test_a_name_that_the_file_lacks_is_told(faq):
    with pytest.raises(UserError) as told:
        load_own_set(Source(faq, called=(("query", "asked"), ("relevant", "answer"))), "faq")
    assert str(told.value) == (
        f"{faq}:1: expected the column 'asked', as 'columns' calls 'query', found question, "
        "answer, n; correct 'columns'."
    )


OTHERS = {
    "These are triplets: see st-train --show triplets": ("anchor", "positive", "negative"),
    "These are texts with labels: see st-train --show labels": ("text", "label"),
    "These are queries with their texts: see st-train --show questions": ("query", "relevant"),
    "add 'sentence1'": ("left", "right", "score"),
}


@pytest.mark.parametrize("told", OTHERS)
def test_data_of_another_kind_are_called_by_it(told, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(dict.fromkeys(OTHERS[told], "a")) + "\n")
    with pytest.raises(UserError) as error:
        load_labelled([Source(file)], "scores", (0, 5))
    assert told in str(error.value) and "name the columns with 'columns'" in str(error.value)


def test_json_is_shown_a_line_of_jsonl(tmp_path):
    file = tmp_path / "pairs.json"
    file.write_text("[]")
    with pytest.raises(
        UserError, match=r'each line such as \{"sentence1": "...",.* call it .jsonl'
    ):
        list(read_rows(Source(file)))


def test_classes_by_name_are_numbered_as_they_are_met(tmp_path):
    file = tmp_path / "intents.csv"
    file.write_text("text,intent\na,lost card\nb,PIN\nc,lost card\nd,3\n")
    source = Source(file, columns=("text", "intent"))
    rows = load_labelled([source], "classes", (0, 5))
    assert rows.dataset["label"][:] == [0, 1, 0, 2]
    assert rows.first_rows == {0.0: f"{file}:2", 1.0: f"{file}:3", 2.0: f"{file}:5"}
    # Where the first is a number, all have to be.
    file.write_text("text,intent\na,4\nb,PIN\n")
    with pytest.raises(UserError, match="expected a number in 'intent', found 'PIN'"):
        load_labelled([source], "classes", (0, 5))
    file.write_text("text,intent\na,PIN\nb,\n")
    with pytest.raises(UserError, match="3: 'intent' is empty"):
        load_labelled([source], "classes", (0, 5))


def test_a_file_that_is_no_jsonl_is_told_before_it_is_read(tmp_path):
    file = Path(tmp_path / "rows.jsonl")
    file.write_text("[\n{}]\n")
    with pytest.raises(UserError, match="expected a JSON object on each line"):
        columns_of(file)
