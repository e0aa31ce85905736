"""What came of some items, as tables, a page and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from st_jtcse.papers.reproduce.items import Item
from st_jtcse.papers.reproduce.verdicts import Judged, judge
from st_jtcse.reports.page import Section, render_page
from st_jtcse.reports.seed_reports import shown, spread
from st_jtcse.reports.table import Table

MINI = (
    "Small: the embedded model, which was fine-tuned on a billion pairs and has a quarter of "
    "BERT base's weights, 2400 bundled sentences, and for scores {sets}."
)


@dataclass
class Outcome:
    """What came of one item."""

    item: Item
    figures: dict[str, list[float]] = field(default_factory=dict)  # by row and seed
    failed: dict[str, str] = field(default_factory=dict)  # by row, why it has no figure
    notes: list[str] = field(default_factory=list)  # counts, files, states
    small: bool = True  # whether it was made in the small
    sets: str = ""  # the given sets that its rows are scored on

    def table(self) -> Table | None:
        """Return the paper's values, ours, and their difference."""
        if not self.item.rows:
            return None
        rows = [self._row(label, paper) for label, (paper, _) in self.item.rows.items()]
        columns = ["", "paper", "ours", "difference"]
        return Table(columns, rows, f"{self.item.paper}, {self.item.number}")

    def _row(self, label: str, paper: float | None) -> list[str]:
        own = spread(self.figures.get(label, []))
        digits = 2 if self.item.measure in ("score", "modulus") else 3
        theirs, ours, apart = "-", shown(own, digits), "-"
        if label in self.failed:
            ours = "failed"
        if paper is not None:
            theirs = f"{paper:g}"
        if own is not None and paper is not None and self.item.measure == "score":
            apart = f"{own.mean - paper:+.2f}"
        return [label, theirs, ours, apart]

    def judged(self) -> dict[str, Judged | None]:
        """Return what each claim comes to here."""
        return {claim.says: judge(claim, self.figures) for claim in self.item.claims}

    def lines(self) -> list[str]:
        """Return what is to be said beside the table."""
        told = [f"{self.item.shows[0].upper()}{self.item.shows[1:]}."]
        if self.item.values:
            told.append(f"The paper's: {self.item.values}.")
        if self.item.rows and self.item.make != "settings" and self.small:
            told.append(f"What differs: {MINI.format(sets=self.sets or 'bundled pairs')}")
        if self.item.differs and self.small:
            told.append(f"Also: {self.item.differs}.")
        if self.small:
            for says, found in self.judged().items():
                verdict = "not testable here"
                if found is not None:
                    verdict = f"{found.verdict}; {found.told}"
                told.append(f"Claim: {says}. Here: {verdict}.")
        told += [f"{label} failed: {why}" for label, why in self.failed.items()]
        return told + self.notes

    def record(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        claims = {says: found and found._asdict() for says, found in self.judged().items()}
        means = {label: statistics.fmean(found) for label, found in self.figures.items()}
        return {
            "item": self.item.id,
            "state": self.item.state,
            "sets": self.sets,
            "figures": self.figures,
            "means": means,
            "failed": self.failed,
            "claims": claims,
            "notes": self.notes,
        }


def page(outcomes: Sequence[Outcome], facts: Mapping[str, Any]) -> str:
    """Return the page of all outcomes."""
    told = ", ".join(f"{key} {value}" for key, value in facts.items())
    sections = [Section("What this is", f"Tables and figures of the papers, made here: {told}.")]
    for one in outcomes:
        heading = f"{one.item.paper}, {one.item.number}"
        sections.append(Section(heading, "\n\n".join(one.lines()), one.table()))
    return render_page("Tables and figures", sections)
