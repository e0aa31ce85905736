"""The block of a recipe that names a view, with the share of a sentence that it changes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from st_jtcse.recipe.blocks import Block, Text, list_shorthand, shorthand

OF_TOKENS = ("shuffle", "mask", "token_cutoff", "feature_cutoff")
# What a view has a share of, and how much by default.
_SHARES = {
    "crop": 0.5,
    "delete": 0.6,
    "repeat": 0.32,
    "mask": 0.15,
    "token_cutoff": 0.15,
    "feature_cutoff": 0.2,
}


class ViewSpec(Block):
    """One of a sentence's views; its name alone stands for it."""

    type: Literal[
        "dropout",
        "crop",
        "delete",
        "repeat",
        "negate",
        "neighbour",
        "shuffle",
        "mask",
        "token_cutoff",
        "feature_cutoff",
        "template",
    ]
    share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="How much of a sentence the view changes: the share of words that crop keeps "
        "(default 0.5), delete drops (0.6) or repeat doubles at most (0.32), of tokens that mask "
        "and token_cutoff hide (0.15), of components that feature_cutoff hides (0.2).",
    )

    text: Text | None = Field(
        None,
        description="Of template, the prompt: [X] is the sentence, [MASK] the mask token. Null: "
        "the model's own.",
    )

    @model_validator(mode="after")
    def _share_of_something(self) -> ViewSpec:
        if self.share is not None and self.type not in _SHARES:
            raise ValueError(
                f"expected no 'share' beside '{self.type}', found {self.share:g}. Remove 'share'."
            )
        if self.text is not None and self.type != "template":
            raise ValueError(f"expected no 'text' beside '{self.type}', found one. Remove 'text'.")
        return self

    @property
    def portion(self) -> float:
        """The share, also where it is not given; 1 for a view that has none."""
        return self.share if self.share is not None else _SHARES.get(self.type, 1.0)


Views = Annotated[
    list[Annotated[ViewSpec, shorthand("type")]],
    BeforeValidator(list_shorthand),
    Field(min_length=1, max_length=3),
]
