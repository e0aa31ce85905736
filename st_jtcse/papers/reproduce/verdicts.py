"""Whether a claim holds: a difference or a ratio of spreads with its interval over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy import stats

from st_jtcse.papers.reproduce.items import Claim, Verdict

_LEVEL = 0.95


class Judged(NamedTuple):
    """What was found of a claim."""

    verdict: Verdict
    told: str  # the figures behind it


def difference(higher: Sequence[float], lower: Sequence[float]) -> Judged:
    """Judge whether the first is higher than the second, both by seed; one seed leaves it open."""
    apart = [a - b for a, b in zip(higher, lower, strict=True)]
    mean = statistics.fmean(apart)
    if len(apart) < 2:
        return Judged("open", f"{mean:+.2f}, one seed")
    half = stats.t.ppf((1 + _LEVEL) / 2, len(apart) - 1) * statistics.stdev(apart)
    return _judge(mean, float(half / math.sqrt(len(apart))))


def of_summaries(ours: tuple[float, float, float, float], seeds: int = 3) -> Judged:
    """Judge the same by two means and deviations over as many seeds each (Welch's interval)."""
    higher, of_higher, lower, of_lower = ours
    parts = [deviation**2 / seeds for deviation in (of_higher, of_lower)]
    freedom = sum(parts) ** 2 / sum(part**2 / (seeds - 1) for part in parts)
    half = stats.t.ppf((1 + _LEVEL) / 2, freedom) * math.sqrt(sum(parts))
    return _judge(higher - lower, float(half))


def _judge(mean: float, half: float) -> Judged:
    verdict: Verdict = "open"
    if abs(mean) > half:
        verdict = "holds" if mean > 0 else "does not"
    return Judged(verdict, f"{mean:+.2f} ± {half:.2f}")


def steadier(steady: float, other: float, seeds: int) -> Judged:
    """Judge by deviations over seeds whether the first is smaller (F test of the variances)."""
    told = f"deviations {steady:.2f} and {other:.2f} over {seeds} seeds"
    if seeds < 2 or not steady or not other:
        return Judged("open", told)
    limit = stats.f.ppf((1 + _LEVEL) / 2, seeds - 1, seeds - 1)
    ratio = (other / steady) ** 2
    if ratio > limit:
        return Judged("holds", told)
    return Judged("does not" if ratio < 1 / limit else "open", told)


def _gains(rows: Mapping[str, Sequence[float]], after: str, before: str) -> list[float]:
    return [a - b for a, b in zip(rows[after], rows[before], strict=True)]


def judge(claim: Claim, rows: Mapping[str, Sequence[float]]) -> Judged | None:
    """Judge a claim by the figures of rows by seed; None where it has no test or a row lacks."""
    needed = claim.rows
    if not needed or any(not rows.get(name) for name in needed):
        return None
    if claim.spread:
        first, second = (list(rows[name]) for name in needed)
        if len(first) < 2:
            return Judged("open", "one seed")
        deviations = statistics.stdev(first), statistics.stdev(second)
        return steadier(*deviations, len(first))
    if claim.gains:
        small, large = (_gains(rows, *pair) for pair in (needed[:2], needed[2:]))
        return difference(large, small)
    if claim.test[1] == ">":
        return difference(rows[needed[0]], rows[needed[1]])
    best = rows[needed[0]]
    named = needed[1:] or [name for name in rows if name != needed[0]]
    others = {name: rows[name] for name in named if rows[name]}
    if not others:
        return None
    judged = {name: difference(best, found) for name, found in others.items()}
    verdicts = {one.verdict for one in judged.values()}
    worst = min(others, key=lambda name: statistics.fmean(best) - statistics.fmean(others[name]))
    told = f"{judged[worst].told} beside {worst}"
    if "does not" in verdicts:
        return Judged("does not", told)
    return Judged("holds" if verdicts == {"holds"} else "open", told)


def reported(claim: Claim) -> Judged | None:
    """Judge a claim by what a page of the documentation has; None where none has anything."""
    if claim.ours is not None:
        if claim.spreads:
            return steadier(claim.ours[3], claim.ours[1], 3)
        return of_summaries(claim.ours)
    if claim.told is not None and claim.told_verdict is not None:
        return Judged(claim.told_verdict, claim.told)
    return None
