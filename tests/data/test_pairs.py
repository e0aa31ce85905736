import json

import pytest

from st_jtcse.data import Source, load_pairs
from st_jtcse.errors import UserError

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
        (["a", "b", "high"], "p.jsonl:2: expected a number in 'score', found 'high'; correct the row."),
        (["a", "b", True], "p.jsonl:2: expected a number in 'score', found True; correct the row."),
        (["a", "b", None], "p.jsonl:2: expected a number in 'score', found None; correct the row."),
        (["a", "b", float("nan")], "p.jsonl:2: expected a number in 'score', found nan; correct the row."),
        (
            ["a", "b", 5.5],
            "p.jsonl:2: the score 5.5 is outside 0 to 5; correct it or set the range",
        ),
        (["a", " ", 1], "p.jsonl:2: 'sentence2' is empty; fill it or remove the row."),
        ([7, "b", 1], "p.jsonl:2: expected text in 'sentence1', found 7; correct the row."),
        (["a", "b"], "p.jsonl:2: expected the columns sentence1, sentence2, score, found sentence1, sentence2; add"),
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
    assert "holds 1 pairs; a rank correlation needs at least 2" in faults_of(write(tmp_path / "b.jsonl", GOOD[:1]))[0]
    (tmp_path / "p.txt").write_text("a\n")
    assert "pairs need columns, found a text file" in faults_of(Source(file=tmp_path / "p.txt"))[0]
