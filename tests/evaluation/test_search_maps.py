"""Maps for search are fitted on queries made of a text, and chosen where a second opinion agrees."""

import numpy as np

from st_jtcse.data.known_items import known_items
from st_jtcse.evaluation.search_maps import START, WAYS, Entry, Way, chosen, compete
from st_jtcse.modules.closed_forms import unit_rows

WORDS = [f"{first}{second}{third}" for first in "bdfg" for second in "aeiou" for third in "lmnrst"]


def world(shift):
    """Passages of words, each word a direction; queries have the same words, `shift` aside."""
    random = np.random.default_rng(0)
    directions = random.normal(size=(len(WORDS), 48))
    of_word = dict(zip(WORDS, directions))
    own = [random.choice(WORDS, 10, replace=False) for _ in range(300)]
    texts = [" ".join(random.choice(words, 30)) for words in own]
    items = known_items(texts, 0, 200)

    def encode(rows):
        return np.stack([np.mean([of_word[word] for word in row.split()], axis=0) for row in rows])

    aside = random.normal(size=48)
    vectors = unit_rows(encode(texts) + shift * aside).astype(np.float32)
    queries = unit_rows(encode(items.queries) - shift * aside).astype(np.float32)
    rests = np.zeros_like(queries)
    cut = [at for at, rest in enumerate(items.rests) if rest]
    rests[cut] = unit_rows(encode([items.rests[at] for at in cut]) + shift * aside)
    return vectors, queries, rests, items, texts


def test_the_best_candidate_finds_more_of_passages_without_their_sentences():
    entries = compete(*world(shift=0.0))
    assert [entry.name for entry in entries] == [START, *(way.name for way in WAYS)]
    best = chosen(entries)
    assert best.name != START and best.unseen > entries[0].unseen + 2


def test_the_same_text_gives_the_same_maps():
    first, second = (compete(*world(shift=0.0))[-1] for _ in range(2))
    assert (first.maps[0].matrix == second.maps[0].matrix).all()
    assert (first.known, first.agreement) == (second.known, second.agreement)


def test_a_way_without_queries_whitens_alone():
    (whitened,) = compete(*world(shift=0.0), ways=[Way(-0.5, 1.0, None)])[1:]
    assert len(whitened.maps) == 1 and whitened.name == "axes -0.5, centred 1"


def test_one_opinion_alone_chooses_nothing():
    def entry(name, **figures):
        return Entry(name, [], **{"known": 70.0, "unseen": 30.0, "agreement": 40.0, **figures})

    start = entry(START, stays=100.0)
    flattered = entry("flattered", known=80.0, unseen=29.0, stays=90.0)
    alone = entry("alone", unseen=35.0, agreement=39.0, stays=90.0)
    worse = entry("worse", unseen=35.0, known=69.0, stays=90.0)
    moved = entry("moved", unseen=35.0, stays=50.0)
    sound = entry("sound", unseen=31.0, stays=85.0)
    assert chosen([start, flattered, alone, worse, moved, sound]) is sound
    assert chosen([start, flattered, alone, worse, moved]) is start
