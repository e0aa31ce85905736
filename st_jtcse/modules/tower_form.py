"""How saved models pool, so that what is made of them embeds as they do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from st_jtcse.errors import UserError
from st_jtcse.modules.loading import check_embeds
from st_jtcse.modules.shipped_form import ShippedForm, shipped_form
from st_jtcse.towers.modeling_tower_pooling import TOWER_POOLINGS, TowerPooling


@dataclass(frozen=True)
class TowerForm:
    """What turns the rows of an encoder's tokens into an embedding, and what goes before a
    sentence.
    """

    pooling: TowerPooling = "cls"
    normalize: bool = False
    include_prompt: bool = True
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = field(default=None, compare=False)  # Of several the first
    max_seq_length: int | None = field(
        default=None, compare=False
    )  # None: the tokenizer's; of several the least

    @property
    def of_towers(self) -> dict[str, Any]:
        """The part that the towers' model does itself, as arguments of its configuration."""
        return {
            "pooling": self.pooling,
            "normalize": self.normalize,
            "include_prompt": self.include_prompt,
        }

    @property
    def of_model(self) -> dict[str, Any]:
        """The part that stays with the model around them, as arguments of SentenceTransformer."""
        return {
            "prompts": dict(self.prompts),
            "default_prompt_name": self.default_prompt_name,
            "similarity_fn_name": self.similarity_fn_name,
        }


def tower_form(name: str | os.PathLike[str], form: ShippedForm) -> TowerForm:
    """Return how a saved model pools, as a tower does it.

    Raises:
        UserError: Its embedding is no pooled state of its encoder, or not one that a tower can
            give.
    """
    if form.modules not in (("Pooling",), ("Pooling", "Normalize")):
        raise UserError(
            f"{name} makes its embedding by {', '.join(('Transformer', *form.modules))}, but a "
            "tower has an encoder, a pooling and a normalisation only; name a pooling to take its "
            "encoder alone."
        )
    if form.pooling not in TOWER_POOLINGS:
        raise UserError(
            f"{name} is pooled by {form.pooling!r}, which a twin cannot do; name one of "
            f"{', '.join(TOWER_POOLINGS[:-1])}."
        )
    pooling, normalize = form.pooling, "Normalize" in form.modules
    return TowerForm(
        pooling,
        normalize,
        form.include_prompt,
        form.prompts,
        form.default_prompt_name,
        form.similarity_fn_name,
        form.max_seq_length,
    )


def shared_form(
    names: Sequence[str | os.PathLike[str]], *, revision: str | None = None
) -> TowerForm:
    """Read how several saved models pool.

    Raises:
        PoolingNeeded: One is a plain encoder, or of a kind that embeds no sentences.
        UserError: They differ, which is named.
    """
    for name in names:
        check_embeds(name, revision)
    shipped = {name: shipped_form(name, revision=revision) for name in names}
    forms = {name: tower_form(name, form) for name, form in shipped.items() if form}
    first = forms[names[0]]
    for name, form in forms.items():
        for key in (each.name for each in fields(TowerForm) if each.compare):
            here, there = (getattr(each, key) for each in (first, form))
            if here != there:
                raise UserError(
                    f"{names[0]} and {name} differ in {key}: {here!r} in the first, {there!r} in "
                    "the other; a sum needs one, so name a pooling to take both encoders alone."
                )
    lengths = [form.max_seq_length for form in forms.values() if form.max_seq_length is not None]
    return replace(first, max_seq_length=min(lengths, default=None))
