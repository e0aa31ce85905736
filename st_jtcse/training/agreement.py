"""Whether all processes of a run are in the same: one recipe, one set of versions, one disk."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from st_jtcse import processes
from st_jtcse.errors import UserError
from st_jtcse.recipe.load import LoadedRecipe, resolved_yaml
from st_jtcse.training.provenance import environment

# What may differ from one machine to the next.
_OF_MACHINES = ("machine", "device", "threads", "processes")


def check_agreement(loaded: LoadedRecipe, cache: Path) -> None:
    """Raise UserError, in every process alike, where they have other recipes or versions, or do
    not see one cache folder.
    """
    if processes.count() == 1:
        return
    known = environment()
    told = processes.gathered(
        {
            "node": f"process {processes.rank()} on {socket.gethostname()}",
            "versions": {key: str(known[key]) for key in known if key not in _OF_MACHINES},
            "recipes": dict(enumerate(resolved_yaml(loaded.recipe).splitlines(), 1)),
        }
    )
    first = told[0]
    for other in told[1:]:
        for what in ("versions", "recipes"):
            if different := _difference(first[what], other[what]):
                raise UserError(
                    f"{first['node']} and {other['node']} have different {what} ({different}); "
                    "give all processes the same."
                )
    _check_shared(cache, [process["node"] for process in told])


def _difference(first: Mapping[object, str], other: Mapping[object, str]) -> str:
    """Return the first difference in words; empty where there is none."""
    for key in [*first, *(key for key in other if key not in first)]:
        own, theirs = first.get(key, "nothing"), other.get(key, "nothing")
        if own != theirs:
            place = f"line {key}" if isinstance(key, int) else key
            return f"{place}: {own.strip()!r} and {theirs.strip()!r}"
    return ""


def _check_shared(cache: Path, nodes: list[str]) -> None:
    mark = None
    try:
        if processes.rank() == 0:
            # What keeps a folder from being written is told by what first writes there.
            with suppress(OSError):
                cache.mkdir(parents=True, exist_ok=True)
                number, mark = tempfile.mkstemp(prefix=".shared-", dir=cache)
                os.close(number)
        name = processes.gathered(mark)[0]
        seen = processes.gathered(name is None or (cache / os.path.basename(name)).exists())
    finally:
        if mark is not None:
            os.unlink(mark)
    if not all(seen):
        blind = nodes[seen.index(False)]
        raise UserError(
            f"cache_dir {cache}: {blind} does not see there what {nodes[0]} writes; set 'cache_dir'"
            " to a folder that all machines share."
        )
