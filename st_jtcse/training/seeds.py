"""Seeds of the named random choices of a run, all derived from the recipe's one."""

from __future__ import annotations

import hashlib


def derive(seed: int, *names: str) -> int:
    """Return the seed of one named choice, in 0..2^31-1."""
    digest = hashlib.sha256("/".join((str(seed), *names)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
