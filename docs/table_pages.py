"""Make docs/tables-and-figures.md, claims.md and reproduced.md from the table of items and from
what st-reproduce gave.

python docs/table_pages.py [FOLDER]: of a folder of st-reproduce, figures over three seeds or more
are taken into reproduced.json first.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from st_jtcse.papers.reproduce.items import PAPERS, Item, items
from st_jtcse.papers.reproduce.outcome import Outcome
from st_jtcse.papers.reproduce.verdicts import judge, reported

DOCS = Path(__file__).parent
# By item: the sets, and the figures of each row by seed.
REPRODUCED = DOCS / "reproduced.json"
TABLES = """\
# Tables and figures

Every table and figure of the papers: what it shows, the paper's values, what makes it in the paper's size, and our figures on the
embedded model, the one that comes with this package. `docs/table_pages.py` makes this page from `st_jtcse/papers/reproduce/items.yaml`,
and so does `st-reproduce`:

```bash
st-reproduce --list
st-reproduce jtcse-X lsrns-5 --seeds 1..3 --output-dir reproduced
st-reproduce jtcse-I --size paper --output-dir paper-size
```

It trains what the tables and figures need, a stage that several of them share once, and ends with a page: the paper's values, ours, what
differs in the setting, and whether the claim holds here. `--size mini` needs `pip install "st-jtcse[embedded,plots]"` and takes the bundled
text and pairs, which are small. `--data FOLDER` has the rows scored on SentEval's sets that the folder holds, in the form that
[`st-eval`](evaluation.md#local-data) reads, in place of 230 bundled pairs: the way to figures that tell small differences, and for transfer
sets, of which none is bundled, the only one. `--size paper` runs the commands below one after the other and needs the Hub and a GPU, which it looks for
first. `--resume` goes on in a folder and keeps what is finished.

| state | means |
|---|---|
| mini, --data | made in the small on sets of yours |
| mini | made in the small by `st-reproduce`, in the paper's size with the Hub and a GPU |
| Hub and GPU | made in the paper's size only; the row says what the small size lacks |
| lost in print | our copies of the paper lack what it needs |
| drawing | a drawing without data |

{counted} Table I of JTCSE is told in four parts.

Figures under "ours" are Spearman x 100: unless the row says otherwise, the mean of STS-B test, STS12 and STS16, ± the standard deviation
over three seeds, from longer runs than `st-reproduce`'s on other text; they link to the page with the settings. They come from a model with
a quarter of BERT base's parameters and from other sets than the paper's, so compare them with each other only. The
[suites](evaluation.md#suites) print all columns of the papers' tables that are in the authors' repositories. Nothing in the paper's size
was run here: its commands resolve, each finds what it reads left by one before it, and their recipes take steps on tiny stand-ins. What the
tables stand for is on the page of [claims](claims.md).
"""
REST = """
## EDFSE and RankCSE

Of these papers we know only the rows that the other papers print: JTCSE's Table I, TNCSE's Tables 1 and 3, and CoSENT's Tables III and V
above have them.
"""
CLAIMS = """\
# Claims

What the papers' tables and figures stand for, and what of it was seen here. `docs/table_pages.py` makes this page from
`st_jtcse/papers/reproduce/items.yaml`.

Ours are figures of the embedded model, each over three seeds, from the page that the row names. A claim *holds* where the 95 % interval
of the difference lies above zero (Welch's, from means and deviations), *does not* where it lies below zero, and is *open* where zero lies
in it, or where there is one seed. Three seeds give wide intervals: most differences between joint losses are smaller. *Not run here* is
what needs the Hub and a GPU, or what `st-reproduce` makes and nobody has measured over three seeds. Where no longer run has figures, they are
[those of `st-reproduce`](reproduced.md), and the interval is of the differences seed by seed.

The embedded model was fine-tuned on a billion pairs, its pooler was never trained, and it has six layers of 384. The papers start from
BERT base. So this page says little about the papers' models and more about what to expect on a model that is already good.

{counted}

| claim | where | the paper's figures | ours | here |
|---|---|---|---|---|
"""


SMALL = """\
# What st-reproduce gave

For readers of the papers: figures of the [small recipes](tables-and-figures.md), means ± standard deviations over seeds 1, 2 and 3, beside the
papers' from BERT base. `docs/table_pages.py` makes this page from what `st-reproduce ITEM... --data FOLDER` left; the folder has STS-B's
test set, STS12 and STS16, and of the transfer sets CR, MRPC and TREC. Where a row names no sets, it is scored on bundled pairs: 230 for
testing, and for CoSENT's recipes, which train on those, 130 of dev. The recipes take a hundred steps on 2400 sentences, so these are
figures of a model that is hardly changed; compare rows with each other, and with [longer runs](claims.md). As shipped the embedded model
has 77.80 as the mean of STS-B, STS12 and STS16, and 74.04 by its CLS state.
"""


def reproduced() -> dict[str, dict[str, Any]]:
    """Return what st-reproduce gave, by item."""
    found: dict[str, dict[str, Any]] = json.loads(REPRODUCED.read_text(encoding="utf-8"))
    return found


def take(folder: Path) -> None:
    """Take the figures of a folder of st-reproduce, of items whose every row has three seeds."""
    known = reproduced()
    told = json.loads((folder / "reproduced.json").read_text(encoding="utf-8"))
    for item in told["items"]:
        figures = item["figures"]
        if item["failed"] or not figures or min(map(len, figures.values())) < 3:
            continue
        rounded = {row: [round(one, 4) for one in found] for row, found in figures.items()}
        known[item["item"]] = {"sets": item["sets"], "figures": rounded}
    in_order = {name: known[name] for name in items() if name in known}
    REPRODUCED.write_text(json.dumps(in_order, indent=1) + "\n", encoding="utf-8")


def small() -> str:
    """Return the page of what st-reproduce gave."""
    lines = [SMALL]
    for name, found in reproduced().items():
        item = items()[name]
        lines += [f"## {item.paper}, {item.number}\n", f"`{name}`: {item.shows}."]
        if found["sets"]:
            lines.append(f"Scored on {found['sets']}.")
        table = Outcome(item, found["figures"]).table()
        lines += ["", table.markdown() if table else "", ""]
    return "\n".join(lines).rstrip() + "\n"


def cell(text: str) -> str:
    """Return text as a table's cell has it."""
    return text.replace("|", "\\|")


def tables() -> str:
    """Return the page of all tables and figures."""
    found = list(items().values())
    states = Counter(item.state for item in found)
    told = ", ".join(f"{count} {state}" for state, count in states.most_common())
    lines, made = [TABLES.format(counted=f"{len(found)} rows: {told}.")], reproduced().keys()
    for paper in PAPERS.values():
        lines += [
            f"## {paper}\n",
            "| item | number | what it shows | command | ours | the paper's | state |",
        ]
        lines += ["|---|---|---|---|---|---|---|"]
        lines += [row(item, item.id in made) for item in found if item.paper == paper]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n" + REST


def row(item: Item, is_made: bool) -> str:
    """Return an item's row; `is_made` says whether st-reproduce gave it."""
    commands = ", ".join(f"`{command}`" for command in item.commands)
    reason = item.lost or item.lacks
    state = f"{item.state}: {reason}" if reason and not item.in_mini else item.state
    ours = item.ours
    if ours == "-" and is_made:
        ours = f"[in the small](reproduced.md#{anchor(item)})"
    cells = [
        f"`{item.id}`",
        item.number,
        item.shows,
        commands,
        ours,
        item.values or "-",
        state,
    ]
    return f"| {' | '.join(map(cell, cells))} |"


def anchor(item: Item) -> str:
    """Return the anchor of an item's heading."""
    return (
        f"{item.paper}, {item.number}".lower().replace(",", "").replace(".", "").replace(" ", "-")
    )


def claims() -> str:
    """Return the page of claims."""
    rows = list(claim_rows())
    verdicts = Counter(verdict for verdict, _ in rows)
    told = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    return (
        CLAIMS.format(counted=f"{len(rows)} claims: {told}.")
        + "\n".join(line for _, line in rows)
        + "\n"
    )


def claim_rows() -> Iterator[tuple[str, str]]:
    """Yield each claim's verdict and row."""
    made = reproduced()
    for item in items().values():
        for claim in item.claims:
            found, page = reported(claim), claim.page
            if found is None and item.id in made:
                found = judge(claim, made[item.id]["figures"])
                page = f"reproduced.md#{anchor(item)}"
            verdict = "not run here" if found is None else found.verdict
            ours = "-" if found is None else f"[{found.told}]({page})"
            ours += f"; {claim.differs}" if claim.differs and found is not None else ""
            cells = [claim.says, f"{item.paper}, {item.number}", claim.paper, ours, verdict]
            yield verdict, f"| {' | '.join(map(cell, cells))} |"


PAGES = {"tables-and-figures.md": tables, "claims.md": claims, "reproduced.md": small}

if __name__ == "__main__":
    for folder in sys.argv[1:]:
        take(Path(folder))
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
