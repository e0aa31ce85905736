"""Views of words: what each keeps, how much, and that the draw alone decides."""

from random import Random

import pytest

from st_jtcse.abilities.sentence_views.next_sentences import kept_whole, with_next
from st_jtcse.abilities.sentence_views.view_kinds import chosen, kinds
from st_jtcse.data import Source, load_sentences

crop, delete, repeat, negate = (
    kinds()[name].words for name in ("crop", "delete", "repeat", "negate")
)
SHARES = (0.15, 0.32, 0.5, 0.6, 0.95)


def drawn(view, n, share, seed):
    words = [f"w{place}" for place in range(n)]
    return words, view(words, share, Random(seed))


@pytest.mark.parametrize("n", [2, 3, 10, 41])
@pytest.mark.parametrize("share", SHARES)
def test_a_crop_is_a_span_and_a_deletion_a_rest_of_the_share_within_one_word(n, share):
    for seed in range(20):
        words, span = drawn(crop, n, share, seed)
        start = words.index(span[0])
        assert (
            span == words[start : start + len(span)]
            and len(span) < n
            and abs(len(span) - share * n) <= 1
        )
        words, rest = drawn(delete, n, share, seed)
        assert [word for word in words if word in rest] == rest and abs(
            n - len(rest) - share * n
        ) <= 1
        assert rest and len(chosen(n, share, Random(seed))) == n - len(rest)


@pytest.mark.parametrize("share", SHARES)
def test_a_repetition_keeps_the_order_and_writes_each_word_twice_at_most(share):
    lengths = set()
    for seed in range(300):
        words, said = drawn(repeat, 20, share, seed)
        assert list(dict.fromkeys(said)) == words and said == sorted(said, key=words.index)
        assert max(map(said.count, words)) <= 2
        lengths.add(len(said) - 20)
    assert lengths == set(range(max(2, int(share * 20)) + 1))


@pytest.mark.parametrize("change", [crop, delete, repeat])
def test_every_place_is_drawn_and_the_seed_decides(change):
    views = [drawn(change, 12, 0.5, seed)[1] for seed in range(200)]
    assert views == [drawn(change, 12, 0.5, seed)[1] for seed in range(200)]
    wanted = 2 if change == repeat else 1
    assert all(any(view.count(f"w{place}") == wanted for view in views) for place in range(12))
    assert len(set(map(tuple, views))) > (6 if change == crop else 100)


@pytest.mark.parametrize(
    ("sentence", "opposite"),
    [
        ("A man is eating", "A man is not eating"),
        ("He Could not have known", "He Could have known"),
        ("Dogs run", "Not Dogs run"),
        ("dog", "Not dog"),
        ("not", "Not not"),
        ("Is it red", "Is not it red"),
    ],
)
def test_a_negation_puts_not_behind_the_first_auxiliary_or_takes_it_away(sentence, opposite):
    assert " ".join(negate(sentence.split(), 1.0, Random(0))) == opposite


def test_a_neighbour_is_the_next_sentence_of_its_document(tmp_path):
    (tmp_path / "a.txt").write_text("\na1\na2\na3\n\n\nb1\n\nc1\nc2\n")
    (tmp_path / "b.txt").write_text("d1\nd2\n")
    loaded = load_sentences([Source(file=tmp_path / "a.txt"), Source(file=tmp_path / "b.txt")])
    found = with_next(loaded)
    assert dict(zip(found["sentence"], found["neighbour"])) == {
        "a1": "a2", "a2": "a3", "a3": "a2", "b1": "b1", "c1": "c2", "c2": "c1", "d1": "d2", "d2": "d1"
    }  # fmt: skip
    assert kept_whole(found) == 8
