"""The block of a recipe that names a view, with the share of a sentence that it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from st_jtcse.abilities.sentence_views.view_kinds import Broken, View, described, kinds
from st_jtcse.recipe.blocks import Block, Text, list_shorthand, shorthand

if TYPE_CHECKING:
    Name = str
else:  # Which are found at run time.
    Name = Literal[tuple(kinds())]


class ViewSpec(Block):
    """One of a sentence's views; its name alone stands for it."""

    type: Name = Field(description="Which view: its name.")
    share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="How much of a sentence the view changes. Default: " + described() + ".",
    )

    text: Text | None = Field(
        None,
        description="Of template, the prompt: [X] is the sentence, [MASK] the mask token. Null: "
        "the model's own.",
    )

    @model_validator(mode="after")
    def _share_of_something(self) -> ViewSpec:
        if isinstance(self.kind, Broken):
            raise ValueError(self.kind.fault)
        if self.share is not None and self.kind.share is None:
            raise ValueError(
                f"expected no 'share' beside '{self.type}', found {self.share:g}. Remove 'share'."
            )
        if self.text is not None and self.type != "template":
            raise ValueError(f"expected no 'text' beside '{self.type}', found one. Remove 'text'.")
        return self

    @property
    def kind(self) -> View:
        """What makes it."""
        return kinds()[self.type]

    @property
    def portion(self) -> float:
        """The share, also where it is not given; 1 for a view that has none."""
        return self.share or self.kind.share or 1.0


Views = Annotated[
    list[Annotated[ViewSpec, shorthand("type")]],
    BeforeValidator(list_shorthand),
    Field(min_length=1, max_length=3),
]
