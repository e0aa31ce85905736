"""The neighbours that sentences keep, counted by hand, and the bundled sentences of four kinds."""

import re
from itertools import combinations

import numpy as np
import pytest

from st_jtcse.bundled import folder
from st_jtcse.data import Source
from st_jtcse.errors import UserError
from st_jtcse.evaluation.kept_neighbours import KEPT, beside, sentences_set
from st_jtcse.evaluation.set_columns import holds_sentences

TEXTS = [f"sentence {number}" for number in range(24)]
GENERAL = sorted((folder("recipes") / "general").glob("*.txt"))


class Table:
    """Encodes by a table of vectors."""

    def __init__(self, vectors):
        self._vectors = vectors

    def get_embedding_dimension(self):
        return self._vectors.shape[1]

    def encode(self, wanted, **options):
        return np.array([self._vectors[TEXTS.index(text)] for text in wanted])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "plain.txt"
    path.write_text("\n".join(TEXTS) + "\n\n")
    return path


def nearest_by_hand(vectors, row):
    own = [sum(a * b for a, b in zip(vectors[row], other)) for other in vectors]
    lengths = [sum(a * a for a in other) ** 0.5 for other in vectors]
    cosines = {at: own[at] / lengths[at] for at in range(len(vectors)) if at != row}
    return set(sorted(cosines, key=cosines.get)[-10:])


def test_the_share_is_counted_by_hand(file):
    before, after = np.random.default_rng(5).normal(size=(2, 24, 4))
    own = beside(sentences_set(Source(file), "plain"), Table(before))
    both = [(nearest_by_hand(before, row), nearest_by_hand(after, row)) for row in range(24)]
    by_hand = sum(len(first & second) for first, second in both) / 240
    assert (own.name, own.metric, own.items) == ("plain", KEPT, 24)
    assert own.score(own.statistic(Table(after))) == pytest.approx(by_hand, abs=1e-12)
    assert own.score(own.statistic(Table(before))) == 1 > by_hand
    # Neither lengths nor a turn of all vectors change any cosine.
    turn = np.linalg.qr(np.random.default_rng(6).normal(size=(4, 4)))[0]
    assert own.score(own.statistic(Table(3 * before @ turn))) == 1


def test_a_pairs_file_is_still_pairs_and_a_table_of_sentences_is_none(tmp_path, file):
    def table(name, row):
        (tmp_path / name).write_text(",".join(row) + "\n" + ",".join("a1" for _ in row) + "\n")
        return Source(tmp_path / name)

    assert holds_sentences(Source(file))
    assert holds_sentences(table("plain.csv", ["sentence", "page"]))
    assert holds_sentences(Source(tmp_path / "any.csv", columns=("question",)))
    assert not holds_sentences(table("pairs.csv", ["sentence", "sentence1", "sentence2", "score"]))
    assert not holds_sentences(table("topics.csv", ["text", "label"]))
    assert not holds_sentences(Source(tmp_path / "p.csv", columns=("one", "two", "score")))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (TEXTS[:20], "holds 20 sentences, and whether each keeps its 10 nearest .* 21; add 1.$"),
        (["", " "], "holds 0 sentences, .*; add 21.$"),
        ([*TEXTS, TEXTS[3]], "'sentence 3' is there twice, .*; keep one.$"),
        ([], "plain.txt is empty; give a file with text.$"),
    ],
)
def test_what_cannot_be_measured_is_told(file, lines, message):
    file.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(UserError, match=message):
        sentences_set(Source(file), "plain")


def words(text):
    return set(re.findall(r"[a-z']+", text.lower()))


def alike(first, second):
    return len(first & second) / len(first | second)


def test_the_bundled_kinds_are_varied_and_not_what_adapt_learns_from():
    kinds = {path.stem: sentences_set(Source(path), path.stem).columns[0] for path in GENERAL}
    assert sorted(kinds) == ["captions", "encyclopedia", "news", "questions"]
    assert all(120 <= len(texts) <= 150 for texts in kinds.values())
    own = [words(text) for texts in kinds.values() for text in texts]
    assert max(alike(*pair) for pair in combinations(own, 2)) < 0.6
    taught = (folder("recipes") / "quickstart/sentences.txt").read_text(encoding="utf-8")
    anchors = [words(text) for text in taught.splitlines()]
    assert max(alike(text, anchor) for text in own for anchor in anchors) < 0.8
