"""Sentences of data sets that are read while they are trained on, from files on the disk."""

import json
from itertools import islice

import pytest

from st_jtcse.data import Source, look_at_stream, stream
from st_jtcse.errors import UserError


@pytest.fixture
def source(tmp_path):
    """A data set of three files of 20 sentences."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(3):
        rows = [{"sentence": f" {number} {row} "} for row in range(20)] + [{"sentence": " "}]
        (folder / f"train-{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Source(dataset=str(folder))


def texts(source, seed, count, skip=0):
    rows = stream(look_at_stream([source]).streams, seed)
    return [row["sentence"] for row in islice(rows, skip, skip + count)]


def test_every_sentence_comes_once_a_pass_in_an_order_of_the_seed(source, monkeypatch):
    # With a buffer of one the order of the files shows.
    monkeypatch.setattr("st_jtcse.data.streams._BUFFER", 1)
    everything = {f"{number} {row}" for number in range(3) for row in range(20)}
    first = texts(source, 1, 120)
    assert set(first[:60]) == set(first[60:]) == everything
    assert first[:60] != first[60:] and first == texts(source, 1, 120)
    assert any(texts(source, seed, 120) != first for seed in (2, 3))
    monkeypatch.setattr("st_jtcse.data.streams._BUFFER", 50)
    mixed = texts(source, 1, 120)
    assert mixed != first and set(mixed) == everything and texts(source, 1, 20, skip=100) == mixed[100:]


def test_what_is_looked_at_first_stands_for_the_rest(source, tmp_path):
    looked = look_at_stream([source])
    assert looked.dataset["sentence"][:3] == ["0 0", "0 1", "0 2"] and len(looked.dataset) == 60
    assert looked.sha256 != look_at_stream([Source(dataset=source.dataset, limit=5)]).sha256
    assert set(texts(Source(dataset=source.dataset, limit=5), 1, 10)) == {f"0 {row}" for row in range(5)}
    with pytest.raises(UserError, match="cannot be loaded"):
        look_at_stream([Source(dataset=str(tmp_path / "nothing"))])
    with pytest.raises(UserError, match="row 1: expected the column 'text', found sentence"):
        look_at_stream([Source(dataset=source.dataset, columns=("text",))])
