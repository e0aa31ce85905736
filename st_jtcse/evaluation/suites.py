"""The papers' tables as suites of tasks, read from suites.yaml."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

FILE = Path(__file__).with_name("suites.yaml")
Protocol = Literal["mteb", "senteval"]
# One figure a model, in percent.
Figures = dict[str, Annotated[float, Field(ge=-100, le=100)]]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(_Strict):
    """One row of a paper's table."""

    paper: str = Field(description="How the paper calls it.")
    task: str = Field(description="MTEB's name of the task, or SentEval's of the set.")
    subsets: tuple[str, ...] | None = Field(None, min_length=1, description="Subsets; None for all of the task's.")
    splits: tuple[str, ...] | None = Field(None, min_length=1, description="Splits, instead of the suite's.")
    metric: str | None = Field(None, description="Metric, instead of the suite's.")
    pairs: str | None = Field(None, description="SentEval set whose pairs stand in for the task's own.")
    samples: int | None = Field(None, ge=1, description="Rows of these splits and subsets.")
    reported: Figures = Field(description="What the paper reports.")
    note: str | None = None


class Suite(_Strict):
    """One table of a paper."""

    source: str = Field(description="Paper and table.")
    protocol: Protocol = "mteb"
    note: str | None = None
    metric: str | None = Field(None, description="Metric of every row that names none.")
    splits: tuple[str, ...] = ()
    average: Figures = Field(description="What the paper reports as the mean.")
    reported_by_metric: dict[str, Figures] = Field(default_factory=dict, description="Means over the tasks by metric.")
    instead: str | None = Field(None, description="The suite to run where this one's tasks are not known.")
    rows: tuple[Row, ...]

    @model_validator(mode="after")
    def _whole(self) -> Suite:
        if not self.rows and self.instead is None:
            raise ValueError("a suite needs rows, or the name of the suite to run instead")
        for row in self.rows:
            if self.metric_of(row) is None or (self.protocol == "mteb" and not self.splits_of(row)):
                raise ValueError(f"{row.paper} needs a metric and splits")
        return self

    def metric_of(self, row: Row) -> str | None:
        """Return the metric of a row."""
        return row.metric or self.metric

    def splits_of(self, row: Row) -> tuple[str, ...]:
        """Return the splits of a row."""
        return row.splits or self.splits


@cache
def suites() -> dict[str, Suite]:
    """Return every suite by name, in the order of the file."""
    # libyaml's parser where PyYAML was built with it: the same data in a fraction of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data = yaml.load(FILE.read_text(encoding="utf-8"), Loader=loader)
    return TypeAdapter(dict[str, Suite]).validate_python(data)
