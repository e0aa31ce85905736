"""A share of what a run computes before it trains, made by a command of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from st_jtcse import processes
from st_jtcse.cli import console, running
from st_jtcse.data.shards import Share, in_share
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.training.ahead import compute_ahead
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.sweep import Run


def prepare(
    part: tuple[int, int], loaded: LoadedRecipe, runs: Sequence[Run], names: Sequence[str]
) -> None:
    """Compute the share of what stages of a recipe, or of all runs of its sweep, keep in the cache,
    and say what is there.

    Raises UserError where the run could not be made, or a share cannot.
    """
    running.meet(loaded)
    # The run would be refused there, after all the work.
    RunFolder(Path(loaded.recipe.output_dir)).check(loaded.recipe, resume=True)
    waits: dict[str, None] = {}
    done: set[tuple[int, str]] = set()
    rehearsed: set[str] = set()
    speaks = processes.rank() == 0
    with console.own_lines(speaks=speaks), in_share(*part) as share:
        for each in [run.loaded for run in runs] or [loaded]:
            waits |= dict.fromkeys(compute_ahead(each, names, done, rehearsed))
    if speaks:
        _tell(share, loaded.cache_dir, list(waits))


def _tell(share: Share, cache_dir: Path | None, waits: Sequence[str]) -> None:
    made = [_state(*found) for found in share.files.values()]
    heading = f"Share {share.number} of {share.count} is in {cache_dir}:"
    if not made:
        heading = "Nothing to prepare: the stages have no vectors or round trips to compute now."
    console.say("\n  ".join([heading, *made, *waits]))
    if made and any(left for _, _, left in share.files.values()):
        console.say("When all shares are there, repeat the command without --prepare.")
    elif made:
        console.say("All shares are there: repeat the command without --prepare.")


def _state(kind: str, sentences: int, left: int) -> str:
    if left:
        return f"{kind}: {left} of {sentences} sentences are left to other shares"
    return f"{kind}: all {sentences} sentences are there"
