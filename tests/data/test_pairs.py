import hashlib
import json

import pytest

from st_jtcse.data import Source, load_pair_scores, load_pairs
from st_jtcse.errors import UserError

CORPUS = ["a cat", "a dog", "a bird"]
GOOD = [["A cat.", "A dog.", 1.5], ["A cat.", "The cat.", 4]]


def write(path, rows, names=("sentence1", "sentence2", "score")):
    path.write_text("".join(json.dumps(dict(zip(names, row))) + "\n" for row in rows))
    return Source(file=path)


def faults_of(source, score_range=(0.0, 5.0)):
    with pytest.raises(UserError) as caught:
        load_pairs(source, score_range)
    return caught.value.faults


def test_pairs_are_read(tmp_path):
    pairs = load_pairs(write(tmp_path / "p.jsonl", GOOD), (0.0, 5.0))
    assert (pairs.sentences1, pairs.sentences2) == (["A cat.", "A cat."], ["A dog.", "The cat."])
    assert pairs.scores == [1.5, 4.0]


def test_csv_scores_are_numbers_and_columns_can_be_named(tmp_path):
    (tmp_path / "p.csv").write_text("left,right,gold\na,b,1\nc,d,2.5\n")
    source = Source(file=tmp_path / "p.csv", columns=("left", "right", "gold"))
    assert load_pairs(source, (0.0, 5.0)).scores == [1.0, 2.5]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            ["a", "b", "high"],
            "p.jsonl:2: expected a number in 'score', found 'high'; correct the row.",
        ),
        (["a", "b", True], "p.jsonl:2: expected a number in 'score', found True; correct the row."),
        (["a", "b", None], "p.jsonl:2: expected a number in 'score', found None; correct the row."),
        (
            ["a", "b", float("nan")],
            "p.jsonl:2: expected a number in 'score', found nan; correct the row.",
        ),
        (["a", "b", 10**400], "p.jsonl:2: expected a number in 'score', found 1000"),
        (
            ["a", "b", 5.5],
            "p.jsonl:2: the score 5.5 is outside 0 to 5; correct it or set score_range.",
        ),
        (["a", " ", 1], "p.jsonl:2: 'sentence2' is empty; fill it or remove the row."),
        ([7, "b", 1], "p.jsonl:2: expected text in 'sentence1', found 7; correct the row."),
        (
            ["a", "b"],
            "p.jsonl:2: expected the columns sentence1, sentence2, score, found sentence1, "
            "sentence2; add",
        ),
    ],
)
def test_a_faulty_row_is_named(tmp_path, row, message):
    (fault,) = faults_of(write(tmp_path / "p.jsonl", [GOOD[0], row, GOOD[1]]))
    assert message in fault


def test_five_faults_are_told_and_the_rest_counted(tmp_path):
    faults = faults_of(write(tmp_path / "p.jsonl", [["a", "b", 9]] * 8))
    assert len(faults) == 6 and faults[5].endswith("and 3 more rows like these.")


def test_nothing_to_rank_is_refused(tmp_path):
    assert (
        "every score is 1.5, so nothing can be ranked; grade the pairs."
        in faults_of(write(tmp_path / "a.jsonl", [GOOD[0]] * 2))[0]
    )
    assert (
        "holds 1 pairs; a rank correlation needs at least 2"
        in faults_of(write(tmp_path / "b.jsonl", GOOD[:1]))[0]
    )
    (tmp_path / "p.txt").write_text("a\n")
    assert "pairs need columns, found a text file" in faults_of(Source(file=tmp_path / "p.txt"))[0]


def test_each_judged_pair_is_read_once(tmp_path):
    source = write(
        tmp_path / "s.jsonl",
        [["a cat", " a dog", 0.25], ["a dog", "a cat", "0.25"], ["a bird", "a cat", 1]],
    )
    assert load_pair_scores(source, CORPUS).pairs == [
        ("a cat", "a dog", 0.25),
        ("a bird", "a cat", 1.0),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            ["a cat", "a bird", 1.2],
            "s.jsonl:2: expected a score in [0, 1], found 1.2; correct the row.",
        ),
        (["a cat", "a bird", None], "s.jsonl:2: expected a score in [0, 1], found None"),
        (
            ["a cat", "a fish", 0.5],
            "s.jsonl:2: 'sentence2' is not a sentence of the training data; remove the row",
        ),
        (["a cat", " ", 0.5], "s.jsonl:2: 'sentence2' is empty"),
        (["a dog", "a cat", 0.5], "s.jsonl:2: the pair has the score 0.5 here and 0.25 at"),
        (
            ["a dog", "a cat"],
            "s.jsonl:2: expected the columns sentence1, sentence2, score, found sentence1, "
            "sentence2; add",
        ),
    ],
)
def test_a_faulty_row_of_judged_pairs_is_named(tmp_path, row, message):
    source = write(tmp_path / "s.jsonl", [["a cat", "a dog", 0.25], row])
    with pytest.raises(UserError) as caught:
        load_pair_scores(source, CORPUS)
    assert len(caught.value.faults) == 1 and message in caught.value.faults[0]


def test_a_text_file_of_judged_pairs_is_told_what_it_lacks(tmp_path):
    (tmp_path / "s.txt").write_text("a cat\n")
    with pytest.raises(UserError, match="judged pairs need columns, found a text file; give"):
        load_pair_scores(Source(file=tmp_path / "s.txt"), CORPUS)


def test_hashes_are_those_of_the_rows_as_json_lines(tmp_path):
    rows = [["a cat", " a dog\u00e9", "0.25"], ["a cat", "a bird", 1]]
    source = write(tmp_path / "p.jsonl", rows)
    lines = b'["a cat", "a dog\\u00e9", 0.25]\n["a cat", "a bird", 1.0]\n'
    expected = hashlib.sha256(lines).hexdigest()
    assert load_pairs(source, (0.0, 5.0)).sha256 == expected
    assert load_pair_scores(source, ["a cat", "a dog\u00e9", "a bird"]).sha256 == expected
