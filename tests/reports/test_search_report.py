"""What changed for searchers is counted, drawn and shown with its ranks."""

import numpy as np

from st_jtcse.data.judged_corpus import JudgedCorpus
from st_jtcse.evaluation.searching import rank
from st_jtcse.reports.search_report import SearchedTwice, draw_differences, search_section


def twice():
    texts = [f"text {at} " + "word " * 40 for at in range(150)]
    grades = [{0: 1}, {1: 1, 2: 2}, {3: 1}]
    corpus = JudgedCorpus(texts, texts, list(range(150)), ["one", "two", "three"], grades, 0, "")
    before, after = np.tile(-np.arange(150, dtype=np.float32), (2, 3, 1))
    before[0, 0], after[0, 0] = -4.5, 1  # from rank 5 to rank 1
    before[1, 2], after[1, 2] = 1, -500  # from rank 1 out of sight
    return SearchedTwice(
        "mine", corpus, *(rank(corpus, lambda rows, own=own: own[rows]) for own in (before, after))
    )


def test_the_results_that_moved_most_have_both_ranks():
    both = twice()
    section = search_section(both)
    assert both.sentence == "mine: 1 queries gain, 1 lose, 1 are equal"
    assert both.sentence in section.text
    rows = [[row[0], row[1][:6], *row[2:]] for row in section.table.rows]
    assert rows[:2] == [["two", "text 2", "1", "> 100"], ["one", "text 0", "5", "1"]]
    assert all(len(row[1]) <= 100 for row in section.table.rows)
    assert section.picture is not None and "1 queries gain, 1 lose" in section.picture.alt


def test_bars_are_the_queries_differences():
    both = twice()
    (axes,) = draw_differences(both).axes
    heights = [bar.get_height() for bar in axes.patches]
    np.testing.assert_allclose(heights, sorted(both.differences, reverse=True))
    assert heights[0] > 0 == heights[1] > heights[2]
