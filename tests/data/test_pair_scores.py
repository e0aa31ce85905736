import json

import pytest

from st_jtcse.data import Source, load_pair_scores
from st_jtcse.errors import UserError

CORPUS = ["a cat", "a dog", "a bird"]


def write(path, *rows):
    path.write_text("".join(json.dumps(dict(zip(("sentence1", "sentence2", "score"), row))) + "\n" for row in rows))
    return Source(file=path)


def test_each_pair_is_read_once(tmp_path):
    source = write(tmp_path / "s.jsonl", ["a cat", " a dog", 0.25], ["a dog", "a cat", "0.25"], ["a bird", "a cat", 1])
    assert load_pair_scores(source, CORPUS).pairs == [("a cat", "a dog", 0.25), ("a bird", "a cat", 1.0)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["a cat", "a bird", 1.2], "s.jsonl:2: expected a score in [0, 1], found 1.2; correct the row."),
        (["a cat", "a bird", None], "s.jsonl:2: expected a score in [0, 1], found None"),
        (["a cat", "a fish", 0.5], "s.jsonl:2: 'sentence2' is no sentence of the training data; remove the row"),
        (["a cat", " ", 0.5], "s.jsonl:2: 'sentence2' is empty"),
        (["a dog", "a cat", 0.5], "s.jsonl:2: the pair has the score 0.5 here and 0.25 at"),
        (["a dog", "a cat"], "s.jsonl:2: expected two sentences and a score in the columns"),
    ],
)
def test_a_faulty_row_is_named(tmp_path, row, message):
    source = write(tmp_path / "s.jsonl", ["a cat", "a dog", 0.25], row)
    with pytest.raises(UserError) as caught:
        load_pair_scores(source, CORPUS)
    assert len(caught.value.faults) == 1 and message in caught.value.faults[0]


def test_a_text_file_is_told_what_it_lacks(tmp_path):
    (tmp_path / "s.txt").write_text("a cat\n")
    with pytest.raises(UserError, match="judged pairs need columns, found a text file; give"):
        load_pair_scores(Source(file=tmp_path / "s.txt"), CORPUS)
