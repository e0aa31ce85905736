import hashlib
import json

import pytest

from st_jtcse.data import Source, load_labelled
from st_jtcse.errors import UserError

NLI = {"contradiction": 0.0, "neutral": 1.0, "entailment": 2.0}


def write(path, rows, names=("sentence1", "sentence2", "score")):
    path.write_text("".join(json.dumps(dict(zip(names, row))) + "\n" for row in rows))
    return Source(file=path)


def test_scores_are_brought_to_zero_and_one(tmp_path):
    rows = [["A cat.", " A dog. ", 0], ["a", "b", 2.5], ["c", "d", "5"]]
    found = load_labelled([write(tmp_path / "p.jsonl", rows)], "scores", (0.0, 5.0))
    assert found.dataset.to_dict() == {
        "sentence1": ["A cat.", "a", "c"],
        "sentence2": ["A dog.", "b", "d"],
        "label": [0.0, 0.5, 1.0],
    }
    assert str(found.dataset.features["label"]) == "Value('float32')"


def test_three_way_ranks_come_from_words_and_unlabelled_rows_are_counted(tmp_path):
    rows = [["a", "b", "neutral"], ["c", "d", "-"], ["e", "f", -1], ["g", "h", "entailment"]]
    source = write(tmp_path / "nli.jsonl", rows, ("premise", "hypothesis", "label"))
    source = Source(file=source.file, columns=("premise", "hypothesis", "label"))
    found = load_labelled([source], "scores", (0.0, 2.0), NLI)
    assert found.dataset["label"][:] == [0.5, 1.0] and found.skipped_unlabelled == 2
    assert found.first_rows == {0.5: f"{source.file}:1", 1.0: f"{source.file}:4"}
    classes = load_labelled([source], "classes", (0.0, 5.0), NLI)
    assert (
        classes.dataset["label"][:] == [1, 2]
        and str(classes.dataset.features["label"]) == "Value('int64')"
    )


@pytest.mark.parametrize(
    ("kind", "score_range", "mapping", "labels"),
    [
        ("scores", (-1.0, 1.0), None, [0.0, 1.0, 0.5]),
        ("scores", (0.0, 1.0), {"-1": 0, "1": 1, "0": 0.5}, [0.0, 1.0, 0.5]),
        (
            "classes",
            (0.0, 5.0),
            {"-1.0": 2, "1": 1, "0": 0},
            "expected one of -1.0, 1, 0 in 'label', found -1;",
        ),
    ],
)
def test_minus_one_is_a_label_where_the_recipe_says_so(
    tmp_path, kind, score_range, mapping, labels
):
    names = ("sentence1", "sentence2", "score" if kind == "scores" else "label")
    source = write(tmp_path / "p.jsonl", [["a", "b", -1], ["c", "d", 1], ["e", "f", 0]], names)
    if isinstance(labels, str):
        with pytest.raises(UserError, match=labels):
            load_labelled([source], kind, score_range, mapping)
        return
    found = load_labelled([source], kind, score_range, mapping)
    assert found.dataset["label"][:] == labels and found.skipped_unlabelled == 0


@pytest.mark.parametrize("mark", [-1, "-1", -1.0, "-"])
def test_a_mark_is_skipped_in_any_spelling_and_a_file_of_nothing_else_is_refused(tmp_path, mark):
    rows = [["a", "b", mark], ["c", "d", 1], ["e", "f", 0]]
    names = ("sentence1", "sentence2", "label")
    some = write(tmp_path / "some.jsonl", rows, names)
    assert load_labelled([some], "classes", (0.0, 5.0)).skipped_unlabelled == 1
    with pytest.raises(
        UserError, match=r"none.jsonl holds no labelled row, 1 are marked -1 or '-' as unlabelled"
    ):
        load_labelled([write(tmp_path / "none.jsonl", rows[:1], names)], "classes", (0.0, 5.0))


def test_a_boolean_is_written_as_in_json(tmp_path):
    rows = [["a", "b", True], ["c", "d", False]]
    source = write(tmp_path / "p.jsonl", rows, ("sentence1", "sentence2", "label"))
    assert load_labelled([source], "classes", (0.0, 5.0), {"true": 1, "false": 0}).dataset["label"][
        :
    ] == [1, 0]


def test_texts_without_label(tmp_path):
    source = write(tmp_path / "t.jsonl", [["a", "b", "c"]] * 2, ("anchor", "positive", "negative"))
    found = load_labelled([source, source], "none", (0.0, 5.0))
    assert (
        found.dataset.column_names == ["sentence1", "sentence2", "sentence3"]
        and len(found.dataset) == 4
    )


@pytest.mark.parametrize(
    ("row", "kind", "mapping", "message"),
    [
        (
            ["a", "b", "maybe"],
            "scores",
            NLI,
            "p.jsonl:2: expected one of contradiction, neutral, entailment in 'score'",
        ),
        (
            ["a", "b", "high"],
            "scores",
            None,
            "p.jsonl:2: expected a number in 'score', found 'high'; correct the row, or",
        ),
        (
            ["a", "b", float("nan")],
            "scores",
            None,
            "p.jsonl:2: expected a number in 'score', found nan",
        ),
        (
            ["a", "b", 7],
            "scores",
            None,
            "p.jsonl:2: the score 7 is outside 0 to 5; correct it or set score_range.",
        ),
        (
            ["a", " ", 1],
            "scores",
            None,
            "p.jsonl:2: 'sentence2' is empty; fill it or remove the row.",
        ),
        (
            ["a", "b", 1.5],
            "classes",
            None,
            "p.jsonl:2: expected a class, a whole number from 0, in 'score', found 1.5",
        ),
        (
            ["a", "b"],
            "scores",
            None,
            "p.jsonl:2: expected the columns sentence1, sentence2, score, found sentence1",
        ),
    ],
)
def test_a_faulty_row_is_named(tmp_path, row, kind, mapping, message):
    good = "neutral" if mapping else 1
    source = write(tmp_path / "p.jsonl", [["a", "b", good], row])
    source = Source(file=source.file, columns=("sentence1", "sentence2", "score"))
    with pytest.raises(UserError) as caught:
        load_labelled([source], kind, (0.0, 5.0), mapping)
    assert len(caught.value.faults) == 1 and message in caught.value.faults[0]


def test_equal_scores_are_refused(tmp_path):
    with pytest.raises(UserError, match="every score is the same, so nothing can be ranked"):
        load_labelled([write(tmp_path / "p.jsonl", [["a", "b", 1]] * 3)], "scores", (0.0, 5.0))


def test_scores_are_put_into_equal_bins(tmp_path):
    rows = [["a", "b", score] for score in (0, 0.99, 1, 2.5, 4.9, 5)]
    found = load_labelled([write(tmp_path / "p.jsonl", rows)], "classes", (0.0, 5.0), bins=5)
    assert (
        found.dataset["label"][:] == [0, 0, 1, 2, 4, 4]
        and str(found.dataset.features["label"]) == "Value('int64')"
    )
    found = load_labelled([write(tmp_path / "p.jsonl", rows)], "classes", (0.0, 5.0), bins=2)
    assert found.dataset["label"][:] == [0, 0, 0, 1, 1, 1]


def test_classes_are_refused_as_scores(tmp_path):
    source = write(tmp_path / "p.jsonl", [["a", "b", 0], ["c", "d", 1], ["e", "f", 2]])
    with pytest.raises(
        UserError, match=r"none reaches 5, so they look like classes; set score_range to \[0, 2\]"
    ):
        load_labelled([source], "scores", (0.0, 5.0))
    same = {"0": 0.0, "1": 1.0, "2": 2.0}
    assert load_labelled([source], "scores", (0.0, 5.0), same).dataset["label"][:] == pytest.approx(
        [0, 0.2, 0.4]
    )
    assert load_labelled([source], "scores", (0.0, 2.0)).dataset["label"][:] == [0.0, 0.5, 1.0]


def test_sources_with_other_numbers_of_texts_are_refused(tmp_path):
    two = write(tmp_path / "a.jsonl", [["a", "b", 1], ["a", "b", 2]])
    one = Source(file=two.file, columns=("sentence1", "score"))
    with pytest.raises(UserError, match="expected 2 text columns, found sentence1"):
        load_labelled([two, one], "scores", (0.0, 5.0))


def test_the_hash_is_that_of_the_rows_as_json_lines(tmp_path):
    source = write(tmp_path / "p.jsonl", [["a", " b", 1], ["c", "d\u00e9", 5]])
    for kind, bins, lines in (
        ("scores", None, b'["a", "b", 0.2]\n["c", "d\\u00e9", 1.0]\n'),
        ("classes", 2, b'["a", "b", 0.0]\n["c", "d\\u00e9", 1.0]\n'),
        ("none", None, b'["a", "b", null]\n["c", "d\\u00e9", null]\n'),
    ):
        columns = ("sentence1", "sentence2") if kind == "none" else None
        found = load_labelled(
            [Source(file=source.file, columns=columns)], kind, (0.0, 5.0), bins=bins
        )
        assert found.sha256 == hashlib.sha256(lines).hexdigest()
