"""What a run chooses among the stages of a recipe: how much effort it takes, and what for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, get_args

from pydantic import Field

from st_jtcse.corpus_folder import holds_passages
from st_jtcse.recipe.blocks import Block

Effort = Literal["seconds", "minutes", "full"]
Purpose = Literal["topics", "search"]
# What a recipe says in place of a purpose that its text decides.
BY_TEXT = "by_text"


class OnlySpec(Block):
    """The runs that a stage is part of, by the recipe's own keys of the same names; a key that is
    left out says nothing.

    In other runs the stage is neither built nor read, and no stage may start from it.
    """

    effort: Annotated[list[Effort], Field(min_length=1)] | None = Field(
        None, description="Values of the recipe's 'effort'."
    )
    purpose: Annotated[list[Purpose], Field(min_length=1)] | None = Field(
        None, description="Values of the recipe's 'purpose'."
    )

    @property
    def given(self) -> dict[str, list[str]]:
        """The values by key, of the keys that say something."""
        values = {key: getattr(self, key) for key in CHOICES}
        return {key: own for key, own in values.items() if own is not None}


# The keys of a recipe that choose among its stages, and their values.
CHOICES: dict[str, tuple[str, ...]] = {"effort": get_args(Effort), "purpose": get_args(Purpose)}


def purpose_of(train: Any, folder: Path) -> Purpose:
    """Return what a text is for, as far as its form says it.

    Args:
        train: A recipe's `data.train`, as written.
        folder: Where relative files in it start.
    """
    first = train[0] if isinstance(train, list) and train else train
    file = first.get("file") if isinstance(first, dict) else first
    if isinstance(file, str) and holds_passages(folder / os.path.expanduser(file)):
        return "search"
    return "topics"


class _Stage(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def only(self) -> OnlySpec | None: ...


def left_out_of(stages: Iterable[_Stage], recipe: Mapping[str, Any]) -> set[str]:
    """Name the stages that are not part of a run.

    Args:
        stages: Those of the recipe.
        recipe: The recipe's keys, those of CHOICES among them; a faulty value leaves none out.
    """
    return {
        stage.name
        for stage in stages
        for key, values in (stage.only.given if stage.only else {}).items()
        if recipe.get(key) in CHOICES[key] and recipe.get(key) not in values
    }
