"""What a loss is, said once, on its class: recipes, batches, heads and cards read that and nothing else."""

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
Count = Annotated[int, Field(gt=0)]

Labels = Literal["scores", "classes", "none"]
TeacherForm = Literal["sum", "concatenation"]


@dataclass(frozen=True)
class LossDeclaration:
    """What a loss needs of a model and of its data; what is left out is not known, and anything goes.

    Args:
        cross_encoder: Whether it trains a cross-encoder.
        sentences: Whether it trains on sentences, not on labelled rows.
        views: ``"made"``: it makes both views of the one column itself; ``"given"``: it takes two columns.
        labels: What the label column of its rows is: graded similarities, whole numbers from 0, or absent.
        classes: How many classes it tells apart: a number, or the argument that says so; ``"outputs"``: the model's.
        teachers: How teachers' vectors become its labels; None if it learns from none.
        teachers_weight: The weight that, at 0, does without teachers.
        judged_pairs: Whether it takes judged pairs by its method ``use_pair_scores``.
        in_batch: Whether it compares the rows of a batch with each other.
        pooler_weight: The weight that, above 0, needs a :class:`~st_jtcse.modules.PoolerModulusHead`.
        one_above_zero: Weights that must not all be 0.
        cards: Card templates by the weights that are 0.
        twin: Whether these cards are of two towers only.
    """

    cross_encoder: bool = False
    sentences: bool = False
    views: Literal["made", "given"] | None = None
    labels: Labels | None = None
    classes: int | str | None = None
    teachers: TeacherForm | None = None
    teachers_weight: str | None = None
    judged_pairs: bool = False
    in_batch: bool = False
    pooler_weight: str | None = None
    one_above_zero: tuple[str, ...] = ()
    cards: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    twin: bool = False

    def needs_teachers(self, arguments: Mapping[str, Any]) -> bool:
        """Say whether it cannot be computed without teachers.

        Args:
            arguments: What it is given; defaults may be left out.
        """
        switched_off = self.teachers_weight is not None and arguments.get(self.teachers_weight) == 0
        return self.teachers is not None and not switched_off

    def needs_pooler(self, arguments: Mapping[str, Any]) -> bool:
        """Say whether it compares the towers' pooler outputs.

        Args:
            arguments: What it is given; defaults, which are above 0, may be left out.
        """
        return self.pooler_weight is not None and arguments.get(self.pooler_weight) != 0

    def card(self, arguments: Mapping[str, Any], twin: bool) -> str | None:
        """Return the name of the card template; None if there is none for this setting.

        Args:
            arguments: What it is given; defaults, which are above 0, may be left out.
            twin: Whether the model has two towers.
        """
        off = sorted(name for name, value in arguments.items() if name.endswith("_weight") and not value)
        return self.cards.get(tuple(off)) if twin or not self.twin else None


class DeclaredLoss:
    """Base of this package's losses: arguments are checked against their annotations, and told as they were given."""

    declaration: ClassVar[LossDeclaration]

    @classmethod
    def misfits(cls, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with arguments, all or some: each name, and ``expected X, found Y. Do Z.``.

        Args:
            arguments: By name.
        """
        found = misfits(_arguments_model(cls.__init__), arguments)
        together = cls.declaration.one_above_zero
        if together and all(arguments.get(name) == 0 for name in together):
            names = f"{', '.join(together[:-1])} and {together[-1]}"
            text = f"expected one weight above 0, found 0 for {names}. Make one of them positive."
            found.append((together[0], text))
        return found

    @classmethod
    def check(cls, **arguments: Any) -> None:
        """Refuse arguments that do not fit.

        Raises:
            UserError: With a sentence for each.
        """
        found = cls.misfits(arguments)
        if found:
            raise UserError(*(f"{name}: {text}" for name, text in found))

    def get_config_dict(self) -> dict[str, Any]:
        """Return the constructor's arguments, for the model card."""
        return {name: getattr(self, name) for name in arguments_of(type(self).__init__)}


@cache
def _arguments_model(constructor: Callable[..., Any]) -> type[BaseModel]:
    return model_of(constructor.__qualname__, arguments_of(constructor))
