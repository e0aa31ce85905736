"""Queries that are made of passages say where they are from, and repeat by the seed."""

from st_jtcse.data.known_items import HEADING, SENTENCE, SPAN, WORDS, Heading, known_items

PASSAGES = [
    "The falcon watches the quiet valley. A farmer mends the broken fence before winter comes.",
    "The bakery opens before dawn. Fresh loaves leave the stone oven while the town still sleeps.",
    "too short",
    "The ferry crosses the wide harbour. Gulls follow the wake until lanterns glow ashore.",
    "The bakery opens before dawn. Fresh loaves leave the stone oven while the town still sleeps.",
]


def test_each_long_passage_gives_a_query_of_each_kind():
    items = known_items(PASSAGES, 0)
    assert items.kinds == [WORDS, SPAN, SENTENCE] * 4
    assert sorted(set(items.passages)) == [0, 1, 3, 4]
    for query, passage, kind in zip(items.queries, items.passages, items.kinds):
        text = PASSAGES[passage]
        if kind == "words":
            words = query.split()
            assert len(words) == 5
            places = [text.lower().index(word) for word in words]
            assert places == sorted(places)
        else:
            assert query in text.replace(".", "") or query in text
    cut = [at for at, kind in enumerate(items.kinds) if kind == "sentence"]
    for at, rest in enumerate(items.rests):
        whole = PASSAGES[items.passages[at]]
        assert (
            f"{items.queries[at]} {rest}" == whole or f"{rest} {items.queries[at]}" == whole
        ) == (at in cut)
    assert items.overlap == 1.0


def test_the_seed_says_which():
    texts = [f"{text} {at} again and again" for at in range(40) for text in PASSAGES[:1]]
    assert known_items(texts, 1, most=5) == known_items(texts, 1, most=5)
    assert known_items(texts, 1, most=5).passages != known_items(texts, 2, most=5).passages
    assert len(set(known_items(texts, 1, most=5).passages)) == 5
    assert known_items(["short"], 1).queries == []


def test_halves_share_no_passage_and_copies_count_as_found():
    items = known_items(PASSAGES, 0)
    first, second = map(items.of, items.halves())
    assert not set(first.passages) & set(second.passages)
    assert sorted(first.queries + second.queries) == sorted(items.queries)
    corpus = items.over(PASSAGES)
    assert corpus.names == sorted(corpus.names, reverse=True)
    grades = dict(zip(items.passages, corpus.grades))
    assert grades[0] == {0: 1} and grades[1] == grades[4] == {1: 1, 4: 1}


def test_headings_are_queries_of_their_passages_alone():
    texts = [f"Towns {text}" for text in PASSAGES]
    headings = {
        0: Heading("Towns The farm", PASSAGES[0]),
        1: Heading("Towns The bakery", PASSAGES[1]),
        3: Heading("Towns The harbour", PASSAGES[3]),
        4: Heading("Towns The bakery", PASSAGES[4]),
    }
    items = known_items(texts, 0, headings=headings)
    made = [at for at, kind in enumerate(items.kinds) if kind == HEADING]
    # Two passages below the same headings: neither is the one that they should find.
    found = {items.queries[at]: items.passages[at] for at in made}
    assert found == {"Towns The farm": 0, "Towns The harbour": 3}
    assert all(items.rests[at] == PASSAGES[items.passages[at]] for at in made)
    # The other queries are those without headings.
    others = [at for at in range(len(items.kinds)) if at not in made]
    plain = known_items(texts, 0)
    assert [items.queries[at] for at in others] == plain.queries
