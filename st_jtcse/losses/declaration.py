"""What a loss declares on its class: all that recipes, batches, heads and cards know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
    """What a loss needs of a model and of its data; what it does not say is not checked.

    Its methods take the arguments that the loss is given, defaults left out.
    """

    # Whether it trains a cross-encoder.
    cross_encoder: bool = False
    # Whether it trains on sentences, not on labelled rows.
    sentences: bool = False
    # Whether it makes both views of one column, or takes two columns.
    views: Literal["made", "given"] | None = None
    # Whether it takes the views that a recipe names, by `encode_views`.
    any_views: bool = False
    # Whether it needs a third view of each sentence; or the weight that, above 0, makes it.
    third_view: bool | str = False
    # The label column of labelled rows: graded similarities, whole numbers from 0, or absent.
    labels: Literal["scores", "classes", "none"] | None = None
    # The fewest and the most text columns of labelled rows; None: any.
    texts: tuple[int, int | None] | None = None
    # What it takes that no recipe can give; a recipe then cannot name it.
    beyond: str = ""
    # How many classes: a number, or the argument that says so; "outputs": the model's.
    classes: int | str | None = None
    # How teachers' vectors become its labels; None if it learns from none.
    teachers: Literal["sum", "concatenation"] | None = None
    # The weight that, at 0, does without teachers.
    teachers_weight: str | None = None
    # Whether it takes judged pairs by its method `use_pair_scores`.
    judged_pairs: bool = False
    # The argument that says how many past sentences it compares a batch with.
    queue: str | None = None
    # Whether it compares the rows of a batch with each other.
    in_batch: bool = False
    # Whether it predicts tokens, of the model's whole vocabulary.
    tokens: bool = False
    # The weight that, above 0, needs a PoolerModulusHead.
    pooler_weight: str | None = None
    # Weights that must not all be 0.
    one_above_zero: tuple[str, ...] = ()
    # Card templates by the weights that are 0.
    cards: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    # Whether these cards are of two towers only.
    twin: bool = False
    # Arguments of an earlier version, and what to do instead.
    moved: Mapping[str, str] = field(default_factory=dict)
    # Defaults of its arguments; the catalogue reads them off the class.
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def needs_teachers(self, arguments: Mapping[str, Any]) -> bool:
        """Say whether it cannot be computed without teachers."""
        return self.teachers is not None and self._is_on(self.teachers_weight, arguments)

    def needs_pooler(self, arguments: Mapping[str, Any]) -> bool:
        """Say whether it compares the towers' pooler outputs."""
        return self.pooler_weight is not None and self._is_on(self.pooler_weight, arguments)

    def needs_third_view(self, arguments: Mapping[str, Any]) -> bool:
        """Say whether it compares the two views of a sentence with a third."""
        if isinstance(self.third_view, bool):
            return self.third_view
        return self._is_on(self.third_view, arguments)

    def past(self, arguments: Mapping[str, Any]) -> int:
        """Return how many past sentences it compares a batch with."""
        if self.queue:
            return int({**self.defaults, **arguments}[self.queue])
        return 0

    def _is_on(self, weight: str | None, arguments: Mapping[str, Any]) -> bool:
        """Say whether a weight is above 0; without a weight the answer is yes."""
        return weight is None or {**self.defaults, **arguments}.get(weight) != 0

    @property
    def needs_rows(self) -> bool:
        """Whether it trains on labelled rows, in place of which no sentences' views can stand."""
        return self.labels is not None and self.views != "given"

    @property
    def takes(self) -> str:
        """The data it takes, in the words of a recipe's `data` block."""
        if self.beyond:
            return f"refused: it takes {self.beyond}"
        if self.sentences:
            told = "`train` with three `views`" if self.third_view is True else "`train`"
            if self.teachers:
                told += ", and `teachers`"
            if self.teachers_weight:
                told += f" unless `{self.teachers_weight}: 0`"
            return told
        if self.labels is None:
            return "`train` or `pairs`"
        fewest, most = self.texts or (2, None)
        counts = {None: f"{fewest} or more", fewest: f"{fewest}"}
        noun = "text column" if most == 1 else "text columns"
        count = counts.get(most, f"{fewest} to {most}")
        told = f"`pairs` with `labels: {self.labels}`, {count} {noun}"
        if self.views == "given":
            told += ", or `train` with `views` or `augment: {mode: pair}`"
        return told

    def card(self, arguments: Mapping[str, Any], twin: bool) -> str | None:
        """Return the name of the card template for a model of two towers or one; None if there is
        none.
        """
        if self.twin and not twin:
            return None
        weights = {name: value for name, value in arguments.items() if name.endswith("_weight")}
        off = sorted(name for name, value in weights.items() if not value)
        return self.cards.get(tuple(off))


class DeclaredLoss:
    """Base of this package's losses, which checks their arguments against their annotations."""

    declaration: ClassVar[LossDeclaration]

    @classmethod
    def misfits(cls, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with arguments, all or some: each name, and ``expected X, found Y.
        Do Z.``.
        """
        found = misfits(_signature(cls.__name__, cls.__init__), arguments)
        weights = cls.declaration.one_above_zero
        if weights and all(arguments.get(name) == 0 for name in weights):
            names = f"{', '.join(weights[:-1])} and {weights[-1]}"
            text = f"expected one weight above 0, found 0 for {names}. Make one of them positive."
            found.append((weights[0], text))
        if not found:
            found = list(cls.misfits_together({**defaults_of(cls), **arguments}))
        return found

    @classmethod
    def misfits_together(cls, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield what is wrong between arguments, all of them, each of which is right by itself."""
        yield from ()

    @classmethod
    def check(cls, **arguments: Any) -> None:
        """Raise UserError, with a sentence for each argument that does not fit."""
        if found := cls.misfits(arguments):
            raise UserError(*(f"{name}: {text}" for name, text in found))

    def keep(self, arguments: Mapping[str, Any]) -> None:
        """Check the constructor's arguments, which are among its `locals()`, and keep each as an
        attribute.
        """
        given = {name: arguments[name] for name in arguments_of(type(self).__init__)}
        self.check(**given)
        for name, value in given.items():
            setattr(self, name, value)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the constructor's arguments, for the model card."""
        return {name: getattr(self, name) for name in arguments_of(type(self).__init__)}


def defaults_of(loss: type[Any]) -> dict[str, Any]:
    """Return the defaults of a loss's arguments by name."""
    arguments = arguments_of(loss.__init__)
    return {name: given.default for name, given in arguments.items() if not given.required}


@cache
def _signature(name: str, function: Callable[..., Any]) -> type[BaseModel]:
    return model_of(name, arguments_of(function))
