"""st-reproduce: tables and figures of the papers, with the papers' values beside ours."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from st_jtcse.cli import console
from st_jtcse.cli.exit_status import command
from st_jtcse.errors import UserError
from st_jtcse.reports.table import Table

if TYPE_CHECKING:
    from st_jtcse.papers.reproduce.cells import Cells
    from st_jtcse.papers.reproduce.given_sets import GivenSets
    from st_jtcse.papers.reproduce.items import Item
    from st_jtcse.papers.reproduce.outcome import Outcome

logger = logging.getLogger(__name__)

PAGE, RECORD = "index.html", "reproduced.json"
_KIND = "what st-reproduce made"
_MOST_SEEDS = 20


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="st-reproduce",
        description="Make tables and figures of the papers, and show the papers' values beside "
        "ours, what differs in the setting, and whether the claim that each stands for holds.",
        epilog="Example: st-reproduce jtcse-X lsrns-5 --seeds 1..3 --output-dir reproduced",
    )
    names = "tables and figures, such as jtcse-IX; default: all that --size can make"
    parser.add_argument("items", nargs="*", metavar="ITEM", help=names)
    sizes = "mini: on the embedded model and bundled text; paper: with the Hub and a GPU"
    parser.add_argument("--size", choices=("mini", "paper"), default="mini", help=sizes)
    seeds = "seeds of every row of mini, as 1..3 or 7 (default: 1..3)"
    parser.add_argument("--seeds", type=_seeds, default=[1, 2, 3], metavar="SEEDS", help=seeds)
    data = (
        "folder of SentEval's sets, as st-eval takes it, that mini scores on in place of the "
        "bundled pairs"
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help=data)
    folder = "folder of runs, pictures and page (default: reproduced)"
    parser.add_argument(
        "--output-dir", type=Path, default=Path("reproduced"), metavar="DIR", help=folder
    )
    goes_on = "go on in the folder: what is finished there is kept"
    parser.add_argument("--resume", action="store_true", help=goes_on)
    parser.add_argument("--list", action="store_true", help="list the items with state and time")
    return parser


def _seeds(text: str) -> list[int]:
    found = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", text)
    seeds = range(0)
    if found:
        seeds = range(int(found[1]), int(found[2] or found[1]) + 1)
    if not 0 < len(seeds) <= _MOST_SEEDS:
        raise argparse.ArgumentTypeError(
            f"expected up to {_MOST_SEEDS} seeds as 1..3 or 7, found {text!r}"
        )
    return list(seeds)


def _run(options: argparse.Namespace) -> int:
    from st_jtcse.papers.reproduce.items import chosen

    items = chosen(options.items)
    if options.list:
        _list(items)
        return 0
    given = _given(options)
    able = [item for item in items if _is_able(item, options.size, given)]
    for item in items:
        if options.items and item not in able:
            console.say(f"{item.id}: {_why_not(item)}")
    if not able:
        raise UserError(
            f"--size {options.size}: expected a table or figure that it can make, found none. "
            "st-reproduce --list shows the state of each."
        )
    if options.size == "paper":
        from st_jtcse.papers.reproduce.chains import check_reachable

        check_reachable(able)
    _claim(options)
    failed = _paper(able, options) if options.size == "paper" else _mini(able, options, given)
    console.say(f"Open {options.output_dir / PAGE}.")
    if failed:
        console.err.print(f"{failed} of {len(able)} items have something that failed.")
    return 1 if failed else 0


def _list(items: Sequence[Item]) -> None:
    console.show(_listed(items))
    states = Counter(item.state for item in items)
    console.say(", ".join(f"{count} {state}" for state, count in states.most_common()))


def _listed(items: Sequence[Item]) -> Table:
    """Return the list of items with state and time."""
    rows = []
    for item in items:
        minutes = f"{item.minutes} min" if item.minutes else ""
        what = item.lost or item.lacks or item.shows
        rows.append([item.id, item.number, item.state, minutes, what])
    columns = ["item", "in the paper", "state", "one seed", "what it shows, or lacks"]
    return Table(columns, rows, "tables and figures", names=5)


def _is_able(item: Item, size: str, given: GivenSets | None) -> bool:
    if size == "paper":
        return bool(item.commands)
    if item.needs_data:
        return given is not None and bool(given.jobs[item.sets])
    return item.in_mini


def _why_not(item: Item) -> str:
    if item.needs_data:
        return "its sets are not bundled; --data names a folder of yours that has them"
    reason = item.lost or item.lacks
    if not reason:
        return "a drawing without data"
    return f"{item.state}, {reason}"


def _given(options: argparse.Namespace) -> GivenSets | None:
    if options.data is None:
        return None
    if options.size == "paper":
        raise UserError("--data: the commands of --size paper name their sets; use it with mini.")
    from st_jtcse.papers.reproduce.given_sets import GivenSets

    return GivenSets(options.data)


def _claim(options: argparse.Namespace) -> None:
    """Take the output folder, or go on in it; another size's is refused."""
    import json

    from st_jtcse.ownership import is_taken, take_folder

    folder, record = options.output_dir, options.output_dir / RECORD
    if is_taken(folder, _KIND):
        if not options.resume:
            raise UserError(
                f"--output-dir: {folder} holds results already. Go on with --resume, or choose "
                "another folder."
            )
        size = json.loads(record.read_text())["size"] if record.is_file() else options.size
        if size != options.size:
            raise UserError(
                f"--output-dir: expected results of --size {options.size}, found those of --size "
                f"{size} in {folder}. Choose another folder."
            )
    take_folder(folder, _KIND)


@console.quiet_libraries()
def _mini(items: Sequence[Item], options: argparse.Namespace, given: GivenSets | None) -> int:
    from st_jtcse.papers.reproduce.cells import Cells

    cells = Cells(options.output_dir, options.seeds, given)
    with console.own_lines():
        cells.train(items)
        outcomes = [_outcome(item, cells) for item in items]
    _tell(outcomes, options)
    return sum(bool(one.failed) for one in outcomes)


def _outcome(item: Item, cells: Cells) -> Outcome:
    from st_jtcse.papers.reproduce.outcome import Outcome
    from st_jtcse.papers.reproduce.pictures import counts_of, draw

    found = Outcome(item)
    if cells.given is not None and item.measure == "score" and item.make != "convergence":
        found.sets = cells.given.told(item.sets)
    try:
        found.figures = cells.figures(item)
        if item.make == "statistics":
            found.notes += counts_of(item, [item.recipe] if item.recipe else [])
        found.notes += draw(item, cells)
    except UserError as error:
        found.notes += error.faults
        found.failed = {label: "; ".join(error.faults) for label in item.rows}
    for label, place in item.places().items():
        if label not in found.figures:
            found.failed.setdefault(label, cells.failed.get(place.recipe, "no figure"))
    return found


def _tell(outcomes: Sequence[Outcome], options: argparse.Namespace) -> None:
    """Show the tables, and leave page and record."""
    from st_jtcse.atomic import to_json
    from st_jtcse.ownership import replace_ours
    from st_jtcse.papers.reproduce.outcome import page
    from st_jtcse.training.provenance import environment

    for one in outcomes:
        if table := one.table():
            console.show(table)
        for line in one.lines():
            console.say(line)
    seeds = ", ".join(map(str, options.seeds))
    facts = {"size": options.size, "seeds": seeds if options.size == "mini" else "the recipes'"}
    replace_ours(options.output_dir / PAGE, page(outcomes, facts))
    told = {**facts, "environment": environment(), "items": [one.record() for one in outcomes]}
    replace_ours(options.output_dir / RECORD, to_json(told))


def _paper(items: Sequence[Item], options: argparse.Namespace) -> int:
    from st_jtcse.papers.reproduce.chains import commands_of, run_commands
    from st_jtcse.papers.reproduce.outcome import Outcome
    from st_jtcse.papers.reproduce.pictures import counts_of, scores_of

    with console.own_lines():
        failed = run_commands(commands_of(items), options.output_dir)
    outcomes = []
    for item in items:
        own = {at: failed[at] for at in item.commands if at in failed}
        notes = scores_of(item, options.output_dir)
        if item.make == "statistics":
            recipes = [at.split()[1] for at in item.commands if at.startswith("st-train ")]
            notes += counts_of(item, recipes)
        outcomes.append(Outcome(item, {}, own, notes, small=False))
    _tell(outcomes, options)
    return sum(bool(one.failed) for one in outcomes)


main = command(
    _parser, _run, interrupted="what is finished is kept; repeat the command with --resume"
)

if __name__ == "__main__":
    sys.exit(main())
