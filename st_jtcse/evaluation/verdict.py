"""Better, equal or worse than another model, with a paired bootstrap interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import bootstrap
from sentence_transformers import SentenceTransformer

from st_jtcse.evaluation.measured_sets import OwnSet, Statistic
from st_jtcse.records import VerdictRecord

WHOLE = "all sets"
RESAMPLES = 999
LEVEL = 0.95


@dataclass(frozen=True)
class Verdict:
    """How a model does beside a base on one set, or on the mean of several; all scores are x 100.

    Args:
        name: The set.
        base: The base's score.
        score: The model's.
        low: Lower end of the 95 % interval of their difference.
        high: Its upper end.
    """

    name: str
    base: float
    score: float
    low: float
    high: float

    @property
    def word(self) -> Literal["better", "equal", "worse"]:
        """Whether it is better, equal or worse: the interval leaves zero on one side, or
        holds it.
        """
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "equal"

    @property
    def sentence(self) -> str:
        """Say it; the difference is that of the figures as they are shown."""
        change = round(self.score, 2) - round(self.base, 2)
        return (
            f"{self.name}: {self.word}, {self.base:.2f} -> {self.score:.2f} "
            f"({change:+.2f}, 95 % interval {self.low:+.2f} to {self.high:+.2f})"
        )

    def as_record(self) -> VerdictRecord:
        """Return what a results file keeps."""
        return VerdictRecord(
            set=self.name,
            verdict=self.word,
            sentence=self.sentence,
            base=round(self.base, 4),
            score=round(self.score, 4),
            low=round(self.low, 4),
            high=round(self.high, 4),
        )


def verdicts(
    base: SentenceTransformer, model: SentenceTransformer, sets: Mapping[str, OwnSet]
) -> list[Verdict]:
    """Compare a model with a base, e.g. as shipped, on sets by name, as :func:`compare` does."""
    return compare(
        {name: (own, own.statistic(base), own.statistic(model)) for name, own in sets.items()}
    )


def compare(measured: Mapping[str, tuple[OwnSet, Statistic, Statistic]]) -> list[Verdict]:
    r"""Compare a model with a base on sets, and with more than one set on the mean of them.

    Each set's items are drawn with replacement, the same for both models, and the difference of
    their scores taken again; the interval is between the 2.5th and the 97.5th percentile of 999
    such draws, from a fixed seed.

    Args:
        measured: By name a set, the base's statistic and the model's.

    References:
        Efron and Tibshirani, An Introduction to the Bootstrap, 1993, Ch. 13.
    """
    found, draws = [], []
    for name, (own, before, after) in measured.items():
        drawn = 100 * _differences(own.items, before, after)
        draws.append(drawn)
        found.append(_verdict(name, 100 * own.score(before), 100 * own.score(after), drawn))
    if len(found) > 1:
        base = float(np.mean([one.base for one in found]))
        score = float(np.mean([one.score for one in found]))
        found.append(_verdict(WHOLE, base, score, np.mean(draws, axis=0)))
    return found


def _differences(items: int, before: Statistic, after: Statistic) -> npt.NDArray[np.float64]:
    result = bootstrap(
        (np.arange(items),),
        lambda drawn: after(drawn) - before(drawn),
        n_resamples=RESAMPLES,
        vectorized=False,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return np.asarray(result.bootstrap_distribution)


def _verdict(name: str, base: float, score: float, drawn: npt.NDArray[np.float64]) -> Verdict:
    # A draw of equal scores or of one label only has no value.
    tail = 50 * (1 - LEVEL)
    low, high = np.nanpercentile(drawn, [tail, 100 - tail])
    return Verdict(name, base, score, float(low), float(high))
