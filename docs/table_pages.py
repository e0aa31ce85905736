"""Make docs/tables-and-figures.md and docs/claims.md from the table of items.

python docs/table_pages.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from st_jtcse.papers.reproduce.items import PAPERS, Item, items
from st_jtcse.papers.reproduce.verdicts import reported

DOCS = Path(__file__).parent
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
what needs the Hub and a GPU, or what `st-reproduce` makes and nobody has measured over three seeds on sets large enough.

The embedded model was fine-tuned on a billion pairs, its pooler was never trained, and it has six layers of 384. The papers start from
BERT base. So this page says little about the papers' models and more about what to expect on a model that is already good.

{counted}

| claim | where | the paper's figures | ours | here |
|---|---|---|---|---|
"""


def cell(text: str) -> str:
    """Return text as a table's cell has it."""
    return text.replace("|", "\\|")


def tables() -> str:
    """Return the page of all tables and figures."""
    found = list(items().values())
    states = Counter(item.state for item in found)
    told = ", ".join(f"{count} {state}" for state, count in states.most_common())
    lines = [TABLES.format(counted=f"{len(found)} rows: {told}.")]
    for paper in PAPERS.values():
        lines += [
            f"## {paper}\n",
            "| item | number | what it shows | command | ours | the paper's | state |",
        ]
        lines += ["|---|---|---|---|---|---|---|"]
        lines += [row(item) for item in found if item.paper == paper]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n" + REST


def row(item: Item) -> str:
    """Return an item's row."""
    commands = ", ".join(f"`{command}`" for command in item.commands)
    reason = item.lost or item.lacks
    state = f"{item.state}: {reason}" if reason and not item.in_mini else item.state
    cells = [
        f"`{item.id}`",
        item.number,
        item.shows,
        commands,
        item.ours,
        item.values or "-",
        state,
    ]
    return f"| {' | '.join(map(cell, cells))} |"


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
    for item in items().values():
        for claim in item.claims:
            found = reported(claim)
            verdict = "not run here" if found is None else found.verdict
            ours = "-" if found is None else f"[{found.told}]({claim.page})"
            ours += f"; {claim.differs}" if claim.differs and found is not None else ""
            cells = [claim.says, f"{item.paper}, {item.number}", claim.paper, ours, verdict]
            yield verdict, f"| {' | '.join(map(cell, cells))} |"


PAGES = {"tables-and-figures.md": tables, "claims.md": claims}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
