"""Changes of a sentence's words: what ESimCSE repeats of them, and SNCSE's opposite."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_AUXILIARIES = frozenset(
    "am is are was were be been do does did has have had can could will would shall should may "
    "might must".split()
)


def repeat(words: Sequence[str], share: float, draw: Random) -> list[str]:
    r"""Write k words twice, each copy behind its word; k is uniform in :math:`0..\max(2, \lfloor ρn
    \rfloor)`.

    References:
        Wu et al., ESimCSE, COLING 2022, Eq. 2 to 4, ρ = 0.32.
    """
    count = draw.randint(0, min(len(words), max(2, int(share * len(words)))))
    twice = set(draw.sample(range(len(words)), count))
    return [word for place, word in enumerate(words) for _ in range(2 if place in twice else 1)]


def negate(words: Sequence[str]) -> list[str]:
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
