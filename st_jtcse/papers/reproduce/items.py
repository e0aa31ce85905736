"""The papers' tables and figures as items.yaml has them: the one table that command and pages are
made from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from st_jtcse.errors import UserError
from st_jtcse.wording import nearest

ITEMS = Path(__file__).with_name("items.yaml")
PAPERS = {"jtcse": "JTCSE", "tncse": "TNCSE", "cosent": "CoSENT", "lsrns": "LS-RNS"}
Verdict = Literal["holds", "does not", "open"]
Sets = Literal["sts", "unseen", "transfer", "own"]
Measure = Literal[
    "score", "alignment", "uniformity", "modulus", "energy", "spread", "top_fifth", "sep_share"
]


class Place(NamedTuple):
    """Where a row's figure comes from: a stage of a recipe, a point of its sweep, a pooling, and
    what is measured in place of the item's measure.
    """

    recipe: str
    stage: str
    point: int | None
    pooling: str | None
    measure: Measure | None = None


class Strict(BaseModel):
    """Base of what items.yaml holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Claim(Strict):
    """Something that a table stands for, and what of it was seen."""

    says: str = Field(description="The claim.")
    paper: str = Field(description="The paper's figures for it.")
    test: tuple[str, ...] = Field(
        (), description="[ROW, '>', ROW], or [ROW, best, ROW, ...], of all by default."
    )
    spread: tuple[str, ...] = Field((), description="[ROW, '<', ROW], of deviations over seeds.")
    gains: tuple[str, ...] = Field(
        (), description="[ROW, ROW, '<', ROW, ROW], of the first over the second of each two."
    )
    ours: tuple[float, float, float, float] | None = Field(
        None,
        description="Of three seeds each, as a page has them: mean, deviation, mean, deviation.",
    )
    spreads: bool = Field(False, description="Whether the deviations of `ours` are compared.")
    told: str | None = Field(None, description="What a page tells, where it has no such figures.")
    told_verdict: Verdict | None = Field(None, description="What that says of the claim.")
    page: str | None = Field(None, description="The page of docs/ that has it.")
    differs: str | None = Field(None, description="What differs from the paper's setting.")

    @property
    def rows(self) -> list[str]:
        """The rows that it names."""
        words = (*self.test, *self.spread, *self.gains)
        return [word for word in words if word not in (">", "<", "best")]


class Item(Strict):
    """A table or figure of a paper."""

    id: str = Field(pattern="^(jtcse|tncse|cosent|lsrns)-[A-Za-z0-9-]+$")
    number: str = Field(description="Its number in the paper.")
    shows: str = Field(description="What it shows.")
    values: str = Field("", description="The paper's values.")
    drawing: bool = Field(False, description="Whether it is a drawing without data.")
    lacks: str | None = Field(None, description="What it would need that the package has not.")
    lost: str | None = Field(None, description="What is lost in our copies, so that it cannot be.")
    suite: str | None = Field(None, description="The suite with all columns of the paper.")
    recipe: str | None = Field(None, description="The small recipe of its rows.")
    rows: dict[str, tuple[float | None, str]] = Field(
        {}, description="By label the paper's value and the place of ours."
    )
    make: Literal["score", "diagnosis", "convergence", "surface", "statistics", "settings"] = Field(
        "score", description="How ours is made."
    )
    measure: Measure = Field("score", description="What is measured of a row's model.")
    sets: Sets = Field(
        "sts",
        description="Which sets of --data it is scored on; unseen: graded pairs, never those of "
        "the recipe; own: the recipe's, always.",
    )
    sentence: str | None = Field(None, description="The sentence of attention maps.")
    map: Literal["pca", "tsne"] = Field("pca", description="How a map is made.")
    cases: int = Field(0, description="Pairs to show.")
    minutes: int = Field(0, description="Minutes of one seed in mini, on two cores; estimated.")
    commands: tuple[str, ...] = Field((), description="What makes it in the paper's size, in turn.")
    ours: str = Field("-", description="Figures of longer runs, with their pages.")
    differs: str | None = Field(None, description="What differs from the paper's setting in mini.")
    claims: tuple[Claim, ...] = Field((), description="The claims that it stands for.")

    def __str__(self) -> str:
        return self.id

    @model_validator(mode="after")
    def _whole(self) -> Item:
        for claim in self.claims:
            for label in claim.rows:
                if label not in self.rows:
                    told = f"a claim names the row {label!r}, which is not there"
                    raise ValueError(f"{self.id}: {told}")
        if self.rows and self.recipe is None:
            raise ValueError(f"{self.id}: rows without a recipe")
        return self

    @property
    def paper(self) -> str:
        """The paper's short name."""
        return PAPERS[self.id.partition("-")[0]]

    @property
    def in_mini(self) -> bool:
        """Whether it is made in the small, without Hub and GPU."""
        return bool(self.rows) or self.make in ("surface", "statistics")

    @property
    def needs_data(self) -> bool:
        """Whether the small size has it only with --data, as no such sets are bundled."""
        return self.sets in ("unseen", "transfer")

    @property
    def state(self) -> str:
        """How far it goes here."""
        if self.drawing:
            return "drawing"
        if self.in_mini:
            return "mini, --data" if self.needs_data else "mini"
        if self.lost:
            return "lost in print"
        return "Hub and GPU"

    def places(self) -> dict[str, Place]:
        """Return where each row's figure comes from."""
        return {label: place_of(place, str(self.recipe)) for label, (_, place) in self.rows.items()}


def place_of(text: str, recipe: str) -> Place:
    """Read ``[RECIPE/]STAGE[@POINT][~POOLING][#MEASURE]``."""
    found = re.fullmatch(r"(?:([\w-]+)/)?(\w+)(?:@(\d+))?(?:~(\w+))?(?:#(\w+))?", text)
    if found is None:
        raise ValueError(f"{text!r} is not a place")
    own, stage, point, pooling, named = found.groups()
    measure: Measure | None = TypeAdapter(Measure | None).validate_python(named)
    return Place(own or recipe, stage, int(point) if point else None, pooling, measure)


@cache
def items() -> dict[str, Item]:
    """Return all items by their names, in the order of the papers."""
    read = yaml.safe_load(ITEMS.read_text(encoding="utf-8"))
    return {item.id: item for item in map(Item.model_validate, read)}


def chosen(names: Sequence[str]) -> list[Item]:
    """Return the items of these names, all where there are none; raises UserError for others."""
    known = items()
    faults = list(_unknown(names, list(known)))
    if faults:
        raise UserError(*faults)
    by_lower = {name.lower(): item for name, item in known.items()}
    return [by_lower[name.lower()] for name in dict.fromkeys(names)] or list(known.values())


def _unknown(names: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    lower = {name.lower() for name in known}
    for name in names:
        if name.lower() not in lower:
            near = nearest(name, known)
            hint = f"Did you mean {near!r}?" if near else "st-reproduce --list shows all."
            yield f"expected a table or figure, found {name!r}. {hint}"
