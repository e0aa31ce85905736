"""What a loss is, said once, on its class: recipes, batches, heads and cards read that and nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from st_jtcse.errors import UserError
from st_jtcse.signatures import arguments_of, misfits, model_of

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Part = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(gt=0)]
AcuteAngle = Annotated[float, Field(ge=0, lt=90)]  # in degrees


@dataclass(frozen=True)
class LossDeclaration:
    """What a loss needs of a model and of its data; what is left out is not known, and anything
    goes.

    Its methods take the arguments that the loss is given; defaults, whose weights are above 0, may
    be left out.
    """

    cross_encoder: bool = False  # whether it trains a cross-encoder
    sentences: bool = False  # whether it trains on sentences, not on labelled rows
    views: Literal["made", "given"] | None = (
        None  # whether it makes both views of one column, or takes two columns
    )
    any_views: bool = False  # whether it takes the views that a recipe names, by `encode_views`
    third_view: str | None = (
        None  # the argument that, if given, needs a third view of each sentence
    )
    # The label column of labelled rows: graded similarities, whole numbers from 0, or absent
    labels: Literal["scores", "classes", "none"] | None = None
    texts: tuple[int, int | None] | None = (
        None  # the fewest and the most text columns of labelled rows; None: any
    )
    beyond: str = ""  # what it takes that no recipe can give; a recipe then cannot name it
    classes: int | str | None = (
        None  # how many: a number, or the argument that says so; "outputs": the model's
    )
    # How teachers' vectors become its labels; None if it learns from none
    teachers: Literal["sum", "concatenation"] | None = None
    teachers_weight: str | None = None  # the weight that, at 0, does without teachers
    judged_pairs: bool = False  # whether it takes judged pairs by its method `use_pair_scores`
    queue: str | None = (
        None  # the argument that says how many past sentences it compares a batch with
    )
    in_batch: bool = False  # whether it compares the rows of a batch with each other
    # Whether it predicts tokens, of the model's whole vocabulary; or the argument that, if given,
    # makes it
    tokens: bool | str = False
    pooler_weight: str | None = None  # the weight that, above 0, needs a PoolerModulusHead
    one_above_zero: tuple[str, ...] = ()  # weights that must not all be 0
    cards: Mapping[tuple[str, ...], str] = field(
        default_factory=dict
    )  # card templates by the weights that are 0
    options: tuple[
        str, ...
    ] = ()  # arguments that, if given, make it another method than its card tells
    twin: bool = False  # whether these cards are of two towers only

    def needs_teachers(self, arguments: Mapping[str, Any]) -> bool:
        """Say whether it cannot be computed without teachers."""
        switched_off = self.teachers_weight is not None and arguments.get(self.teachers_weight) == 0
        return self.teachers is not None and not switched_off

    def needs_pooler(self, arguments: Mapping[str, Any]) -> bool:
        """Say whether it compares the towers' pooler outputs."""
        return self.pooler_weight is not None and arguments.get(self.pooler_weight) != 0

    def needs_third_view(self, arguments: Mapping[str, Any]) -> bool:
        """Say whether it compares the two views of a sentence with a third."""
        return self.third_view is not None and bool(arguments.get(self.third_view))

    def predicts_tokens(self, arguments: Mapping[str, Any]) -> bool:
        """Say whether it predicts tokens."""
        return bool(arguments.get(self.tokens)) if isinstance(self.tokens, str) else self.tokens

    def past(self, arguments: Mapping[str, Any]) -> int:
        """Return how many past sentences it compares a batch with."""
        return int(arguments.get(self.queue) or 0) if self.queue else 0

    @property
    def needs_rows(self) -> bool:
        """Whether it trains on labelled rows, in place of which no sentences' views can stand."""
        return self.labels is not None and self.views != "given"

    @property
    def takes(self) -> str:
        """Say what data it takes, in the words of a recipe's `data` block."""
        if self.beyond:
            return f"refused: it takes {self.beyond}"
        if self.sentences:
            without = f" unless `{self.teachers_weight}: 0`" if self.teachers_weight else ""
            return f"`train`, and `teachers`{without}" if self.teachers else "`train`"
        if self.labels is None:
            return "`train` or `pairs`"
        fewest, most = self.texts or (2, None)
        count = (
            f"{fewest}"
            if fewest == most
            else f"{fewest} or more"
            if most is None
            else f"{fewest} to {most}"
        )
        given = (
            ", or `train` with `views` or `augment: {mode: pair}`" if self.views == "given" else ""
        )
        return (
            f"`pairs` with `labels: {self.labels}`, {count} text "
            f"column{'s' if most != 1 else ''}{given}"
        )

    def card(self, arguments: Mapping[str, Any], twin: bool) -> str | None:
        """Return the name of the card template for a model of two towers or one; None if there is
        none.
        """
        if any(arguments.get(name) for name in self.options):
            return None
        off = sorted(
            name for name, value in arguments.items() if name.endswith("_weight") and not value
        )
        return self.cards.get(tuple(off)) if twin or not self.twin else None


class DeclaredLoss:
    """Base of this package's losses: arguments are checked against their annotations, and told as
    they were given.
    """

    declaration: ClassVar[LossDeclaration]

    @classmethod
    def misfits(cls, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with arguments, all or some: each name, and ``expected X, found Y.
        Do Z.``.
        """
        found = misfits(_signature(cls.__name__, cls.__init__), arguments)
        together = cls.declaration.one_above_zero
        if together and all(arguments.get(name) == 0 for name in together):
            names = f"{', '.join(together[:-1])} and {together[-1]}"
            text = f"expected one weight above 0, found 0 for {names}. Make one of them positive."
            found.append((together[0], text))
        return found

    @classmethod
    def check(cls, **arguments: Any) -> None:
        """Raise UserError, with a sentence for each argument that does not fit."""
        if found := cls.misfits(arguments):
            raise UserError(*(f"{name}: {text}" for name, text in found))

    def get_config_dict(self) -> dict[str, Any]:
        """Return the constructor's arguments, for the model card."""
        return {name: getattr(self, name) for name in arguments_of(type(self).__init__)}


@cache
def _signature(name: str, function: Callable[..., Any]) -> type[BaseModel]:
    return model_of(name, arguments_of(function))
