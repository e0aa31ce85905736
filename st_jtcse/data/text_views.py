"""Views of a sentence: what is drawn of its n words or tokens. The draw alone decides, and n is at
least 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_AUXILIARIES = frozenset(
    "am is are was were be been do does did has have had can could will would shall should may "
    "might must".split()
)


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


def repeat(words: Sequence[str], share: float, draw: Random) -> list[str]:
    r"""Write k words twice, each copy behind its word; k is uniform in :math:`0..\max(2, \lfloor ρn
    \rfloor)`.

    References:
        Wu et al., ESimCSE, COLING 2022, Eq. 2 to 4, ρ = 0.32.
    """
    count = draw.randint(0, min(len(words), max(2, int(share * len(words)))))
    twice = set(draw.sample(range(len(words)), count))
    return [word for place, word in enumerate(words) for _ in range(2 if place in twice else 1)]


def negate(words: Sequence[str], share: float, draw: Random) -> list[str]:
    """Say the opposite in English, without a parser; nothing is drawn, and one word is enough.

    The first "not" goes; where there is none, one comes behind the first auxiliary, or before the
    sentence.
    """
    spoken = [word.lower() for word in words]
    if "not" in spoken and len(words) > 1:
        at = spoken.index("not")
        return [*words[:at], *words[at + 1 :]]
    at = next((place for place, word in enumerate(spoken) if word in _AUXILIARIES), -1)
    return [*words[: at + 1], "not" if at >= 0 else "Not", *words[at + 1 :]]


OF_WORDS = {"crop": crop, "delete": delete, "repeat": repeat, "negate": negate}
