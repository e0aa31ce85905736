"""What changed for searchers between two models: gains and losses by query, and the results that
moved most.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from st_jtcse.data.judged_corpus import JudgedCorpus
from st_jtcse.errors import UserError
from st_jtcse.evaluation.searching import DEEPEST, NDCG, Ranking
from st_jtcse.reports.drawing import WIDE, house_style, panels, picture
from st_jtcse.reports.page import Picture, Section
from st_jtcse.reports.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 10  # Results that are shown
_LETTERS = 100  # Of a text that is shown
_GAIN, _LOSS = "#0072B2", "#D55E00"
_EQUAL = 1e-9


@dataclass(frozen=True)
class SearchedTwice:
    """What two models found for the same queries.

    Args:
        name: What the corpus is called.
        corpus: The corpus.
        before: What the first model found.
        after: What the other one found.
    """

    name: str
    corpus: JudgedCorpus
    before: Ranking
    after: Ranking

    @property
    def differences(self) -> npt.NDArray[np.float64]:
        """How much each query's nDCG@10 x 100 gained, (queries,)."""
        return 100 * (self.after.figures[NDCG] - self.before.figures[NDCG])

    @property
    def sentence(self) -> str:
        """How many queries gain and lose."""
        gains, losses = ((sign * self.differences > _EQUAL).sum() for sign in (1, -1))
        equal = len(self.corpus.queries) - gains - losses
        return f"{self.name}: {gains} queries gain, {losses} lose, {equal} are equal"


def changed_results(both: SearchedTwice) -> Table:
    """Return the relevant documents whose place changed most, by 1 / rank."""
    moved: list[tuple[float, int, int, int | None, int | None]] = []
    for query, grades in enumerate(both.corpus.grades):
        before, after = _ranks(both.before.found[query]), _ranks(both.after.found[query])
        for document in grades:
            old, new = before.get(document), after.get(document)
            change = abs(_reciprocal(new) - _reciprocal(old))
            if change:
                moved.append((change, query, document, old, new))
    moved.sort(key=lambda one: (-one[0], one[1:3]))
    rows = [
        [
            _short(both.corpus.queries[query]),
            _short(both.corpus.texts[both.corpus.starts[document]]),
            _told(old),
            _told(new),
        ]
        for _, query, document, old, new in moved[:_MOST]
    ]
    title = f"{both.name}: the relevant results that moved most"
    return Table(["query", "result", "old rank", "new rank"], rows, title, names=2)


def search_section(both: SearchedTwice) -> Section:
    """Return the section of a page."""
    return Section(
        f"What changed for {both.name}",
        f"{both.sentence}. Below, the relevant results whose rank moved most.",
        changed_results(both),
        _picture(both),
    )


@house_style()
def draw_differences(both: SearchedTwice, width: float = WIDE) -> Figure:
    """Draw each query's gain or loss, the largest gain first."""
    found = np.sort(both.differences)[::-1]
    figure, (axes,) = panels(1, width, least=width, height=2.8)
    colours = np.where(found > 0, _GAIN, _LOSS).tolist()
    axes.bar(range(1, len(found) + 1), found, width=1.0, color=colours)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xlabel(f"query, of {len(found)}, by its gain")
    axes.set_ylabel("change of nDCG@10 x 100")
    axes.margins(x=0.01)
    return figure


def _picture(both: SearchedTwice) -> Picture | None:
    alt = f"{both.sentence}; from {both.differences.max():+.1f} to {both.differences.min():+.1f}."
    try:
        return picture(partial(draw_differences, both), alt)
    except UserError:  # The text says it all.
        return None


def _ranks(found: npt.NDArray[np.int64]) -> dict[int, int]:
    return {int(document): rank for rank, document in enumerate(found, 1)}


def _reciprocal(rank: int | None) -> float:
    return 0.0 if rank is None else 1 / rank


def _told(rank: int | None) -> str:
    return f"> {DEEPEST}" if rank is None else str(rank)


def _short(text: str) -> str:
    return textwrap.shorten(text, _LETTERS, placeholder=" ...")
