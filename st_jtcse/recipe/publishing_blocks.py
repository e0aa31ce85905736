"""The blocks of a recipe about its models on the Hub: what their cards say, and where they go."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from st_jtcse.recipe.data_blocks import Block, Text
from st_jtcse.wording import shown


def _language_code(value: str) -> str:
    if not re.fullmatch("[a-z]{2,3}", value):
        raise ValueError(f"expected a code of two or three letters, found {shown(value)}. Write en for English.")
    return value


class CardSpec(Block):
    """What the model cards of a run say that only its maker knows."""

    license: Text | None = Field(None, description="Licence of the models, as the Hub spells it: mit.")
    language: list[Annotated[str, AfterValidator(_language_code)]] = Field(
        default_factory=list, description="Languages of the training text, by ISO 639 code: [en]."
    )


class PushSpec(Block):
    """Where the models of a run go on the Hub, once all stages are finished."""

    repos: dict[str, str] = Field(min_length=1, description="Repository by stage, e.g. joint: org/jtcse-bert.")
    private: bool = Field(True, description="Whether new repositories are private.")
    collection: Text | None = Field(None, max_length=60, description="Title of a collection to add the models to.")
