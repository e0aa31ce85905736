"""Views of a sentence: what is drawn of its n words or tokens. The draw alone decides, and n is at
least 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


def chosen(n: int, share: float, draw: Random) -> list[int]:
    r"""Draw places without repetition, in order: :math:`k = \min(n - 1, \max(1, [\rho n]))` of n
    for the share ρ.
    """
    return sorted(draw.sample(range(n), min(n - 1, max(1, round(share * n)))))


def crop(words: Sequence[str], share: float, draw: Random) -> list[str]:
    r"""Return a span of a share ρ: :math:`w_{s+1} \dots w_{s+k}`, s uniform in 0..n-k, k as in
    :func:`chosen`.
    """
    length = min(len(words) - 1, max(1, round(share * len(words))))
    start = draw.randrange(len(words) - length + 1)
    return list(words[start : start + length])


def delete(words: Sequence[str], share: float, draw: Random) -> list[str]:
    r"""Leave out a share ρ: :math:`(w_i)_{i \notin D}`, D by :func:`chosen`; TSDAE draws every word
    by itself.
    """
    left_out = set(chosen(len(words), share, draw))
    return [word for place, word in enumerate(words) if place not in left_out]
