"""What is held out, and the share of neighbours against the sum by hand."""

import numpy as np
import pytest
from conftest import make_sentences

from st_jtcse.data import Source, hold_out, load_sentences
from st_jtcse.errors import UserError
from st_jtcse.evaluation.unlabelled import neighbours_set


@pytest.fixture
def read(tmp_path):
    def read(texts):
        (tmp_path / "text.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
        return load_sentences([Source(tmp_path / "text.txt")])

    return read


def test_a_tenth_of_the_different_sentences_is_held_out_with_its_copies(read):
    texts = [f"{text} {number}" for number, text in enumerate(make_sentences(300))]
    sentences = read([*texts, *texts[:150]])
    kept, held = hold_out(sentences)
    assert len(held.dataset) == 30
    left, out = kept.dataset["sentence"][:], held.dataset["sentence"][:]
    assert not set(left) & set(out) and set(left) | set(out) == set(texts)
    assert len(left) == 450 - sum(2 if texts.index(text) < 150 else 1 for text in out)
    again = hold_out(sentences)
    assert (
        (again[0].sha256, again[1].sha256) == (kept.sha256, held.sha256) != (sentences.sha256,) * 2
    )
    assert [row for row, text in enumerate(texts) if text in out] != list(range(30))


@pytest.mark.parametrize(
    "texts", [["the dog runs"] * 500, [f"dog {number}" for number in range(99)]]
)
def test_too_few_different_sentences_are_told_with_what_is_missing(read, texts):
    count = len(set(texts))
    with pytest.raises(
        UserError, match=f"has {count} different sentences, and .* needs 100; add {100 - count}"
    ):
        hold_out(read(texts))


def test_the_score_is_the_share_of_neighbours_by_hand():
    texts = [f"{text} {number}" for number, text in enumerate(make_sentences(40))]
    draw = np.random.default_rng(0)
    reference, own = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in draw.normal(size=(2, 40, 5))
    )

    class Model:
        """Encodes by a table."""

        def get_embedding_dimension(self):
            return 5

        def encode(self, wanted, **options):
            return np.array([own[texts.index(text)] for text in wanted], dtype=np.float32)

    shares = []
    for row in range(40):
        near = [
            {
                at
                for _, at in sorted(
                    ((float(v[row] @ v[at]), at) for at in range(40) if at != row), reverse=True
                )[:10]
            }
            for v in (reference, own)
        ]
        shares.append(len(near[0] & near[1]) / 10)
    for vectors, expected in ((reference, np.mean(shares)), (own, 1.0)):
        found = neighbours_set(texts, vectors.astype(np.float32), "")
        assert found.score(found.statistic(Model())) == pytest.approx(expected)


def test_of_few_texts_some_are_no_neighbours():
    reference, own = np.random.default_rng(1).normal(size=(2, 10, 5)).astype(np.float32)
    found = neighbours_set([str(number) for number in range(10)], reference, "")
    assert found.measure(own)(np.arange(10)) < 1 == found.measure(reference)(np.arange(10))
