"""The interface of an ability: all that some keys of a recipe do, in one class in one file."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, create_model

from st_jtcse.errors import UserError
from st_jtcse.plugins import imported, installed
from st_jtcse.recipe.blocks import WeightedModelSpec
from st_jtcse.recipe.scale import Demand, Scale
from st_jtcse.recipe.yaml_source import Loc

# What methods are given. The blocks of a recipe are built of the abilities' keys, and the engine
# stands above this floor, so an ability names these types itself: StageSpec of recipe.schema,
# PlacedStage of recipe.consistency, Inputs of training.stage_inputs, Job of training.job.
Stage = Any
Placed = Any
Inputs = Any
Job = Any

# The abilities of this package, and the group under which other packages name theirs: a recipe
# alone never imports code.
PACKAGE, ENTRY_POINTS = "st_jtcse.abilities", "st_jtcse.abilities"
# Where in a stage the blocks are that abilities add keys to.
BLOCKS: dict[str, tuple[str, ...]] = {
    "stage": (),
    "model": ("model",),
    "data": ("data",),
    "loss": ("loss",),
    "dev": ("evaluate", "dev"),
}
BlockType = TypeVar("BlockType", bound=BaseModel)


class Need(Enum):
    """What an ability cannot do without; a stage that lacks it is refused."""

    LOSS = "a loss: the stage trains"
    EMBEDDINGS = "a model of embeddings, and no loss: nothing is trained"
    ROWS = "training data, also where nothing is trained"
    SENTENCES = "sentences, not labelled rows"
    TEXT = "sentences, not images"
    ALL_ROWS = "every sentence before training begins"
    ALL_VECTORS = "every teacher's vector before training begins"


class Ability:
    """Base of all abilities. What a method does not say, the ability does not do.

    The engine calls the methods of the abilities that a stage uses, in the order of `after` and
    `before`, and knows nothing else about them.
    """

    # The block of the recipe that the keys stand in, one of BLOCKS, and each key's type and field;
    # the first key is the ability's name in messages.
    block: ClassVar[str] = "stage"
    fields: ClassVar[Mapping[str, tuple[Any, Any]]] = {}
    # Names of the classes whose turn comes before its own, and of those whose turn comes later.
    after: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()
    needing: ClassVar[tuple[Need, ...]] = ()
    # Names under which records hold the hashes of data that it reads.
    data_names: ClassVar[tuple[str, ...]] = ()
    # Names of the folders that it keeps in a stage's beside the checkpoints.
    folders: ClassVar[tuple[str, ...]] = ()
    # Whether the loss becomes another method than its paper's, so that the card tells the recipe.
    alters_loss: ClassVar[bool] = False

    @property
    def key(self) -> str:
        """The ability's key, as messages call it."""
        path = BLOCKS[self.block]
        return ".".join((*path, next(iter(self.fields))))

    def of(self, stage: Stage) -> Any:
        """Return what a stage says under the first key; None where it lacks the block."""
        holder: Any = stage
        for part in (*BLOCKS[self.block], *list(self.fields)[:1]):
            holder = getattr(holder, part, None)
        return holder if self.fields else None

    def given(self, stage: Stage) -> bool:
        """Whether the recipe asks for it."""
        own = self.of(stage)
        return own is not None and own is not False and own != []

    def used(self, stage: Stage) -> bool:
        """Whether it has anything to do at a stage; by default, where the recipe asks for it."""
        return self.given(stage)

    def needs(self, stage: Stage) -> Mapping[Need, str]:
        """Return what it cannot do without at a stage that asks for it, and which key needs it."""
        return dict.fromkeys(self.needing, self.key)

    def models(self, stage: Stage) -> Mapping[Loc, WeightedModelSpec]:
        """Return the frozen models that it reads, by the places of their blocks in the stage."""
        return {}

    def resolve(self, stage: Stage) -> Stage:
        """Return the stage with what follows from the rest of it, where nothing is said."""
        return stage

    def leave_out(self, stage: Stage, names: Collection[str]) -> Stage:
        """Return the stage without other stages that the run leaves out, where it can do without
        them.
        """
        return stage

    def faults(self, placed: Placed) -> Iterator[tuple[Loc, str]]:
        """Yield what does not go together in any stage of a recipe: the place, and a sentence
        ``expected X, found Y. Do Z.``.
        """
        return iter(())

    def load(self, stage: Stage, cache_dir: Path | None) -> Any:
        """Return training rows that it reads in its own way; None leaves that to the engine."""
        return None

    def read(self, stage: Stage, inputs: Inputs) -> None:
        """Read and check files before anything trains, into `inputs`, with their hashes."""

    def pairs_views(self, stage: Stage) -> bool:
        """Whether the rows that it makes are both views of a sentence, for a loss that makes
        none.
        """
        return False

    def expected_rows(self, stage: Stage, rows: int) -> int:
        """Return how many rows it makes of so many, as far as is known before."""
        return rows

    def demands(self, job: Job, scale: Scale, texts: int) -> Iterable[Demand]:
        """Return what it takes of so many texts, beyond what the steps of the training show, for a
        plan of a run of another size; `job` is a rehearsal's.
        """
        return ()

    def begin(self, job: Job) -> None:
        """Do what comes before the start is scored."""

    def ahead(self, job: Job) -> Iterable[Callable[[], Any]]:
        """Return what computes the files that it keeps in `job.cache_dir`, a call each: before the
        run, where there is no loss yet, and perhaps in shares, so that a file need not be whole.

        By default it prepares its rows, which those of others may be made of.
        """
        self.prepare(job)
        return ()

    def prepare(self, job: Job) -> None:
        """Compute what the loss trains on, into `job.dataset`, and tell it in `job.record`."""

    def stand_in(self, job: Job) -> None:
        """Make something up in place of what :meth:`prepare` computes, for a rehearsal."""

    def arguments(self, stage: Stage) -> Mapping[str, Any]:
        """Return training arguments that follow from it, instead of the recipe's."""
        return {}

    def wrap(self, job: Job) -> None:
        """Change the model, the loss, the collator or the callbacks of a training."""

    def finish(self, job: Job) -> None:
        """Change the model after training, or the stage's model where nothing is trained."""

    def saved(self, job: Job, found: Mapping[str, Any]) -> None:
        """Say what there is to say of the model as it was saved; `found` is the stage's record."""

    def ending(self, record: Any) -> Sequence[tuple[str, str]]:
        """Return lines with which a run ends, each with its verdict, equal or worse, by the record
        of the last stage that has some.
        """
        return ()

    def card(self, record: Mapping[str, Any]) -> str:
        """Return a sentence for the model card, by the stage's record."""
        return ""


@cache
def abilities() -> tuple[Ability, ...]:
    """Return all abilities, this package's and those of installed ones, in their order."""
    found: dict[str, Ability] = {}
    package = importlib.import_module(PACKAGE)
    for place in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{PACKAGE}.{place.name}")
        found |= {type(own).__name__: own for own in _of_module(module)}
    for point in installed(ENTRY_POINTS).values():
        own = _installed(point)
        found[type(own).__name__] = own
    order = TopologicalSorter({name: own.after for name, own in sorted(found.items())})
    for name, own in found.items():
        for later in own.before:
            order.add(later, name)
    return tuple(found[name] for name in order.static_order() if name in found)


def given(stage: Stage) -> list[Ability]:
    """Return the abilities that a stage asks for."""
    return [ability for ability in abilities() if ability.given(stage)]


def used(stage: Stage) -> list[Ability]:
    """Return the abilities that have something to do at a stage."""
    return [ability for ability in abilities() if ability.used(stage)]


def with_abilities(block: str) -> Callable[[type[BlockType]], type[BlockType]]:
    """Add to a block of the recipe the keys that abilities have in it."""

    def extended(base: type[BlockType]) -> type[BlockType]:
        fields: dict[str, Any] = {}
        for ability in abilities():
            if ability.block == block:
                _refuse_taken(ability, {**base.model_fields, **fields})
                fields |= ability.fields
        made: type[BlockType] = create_model(
            base.__name__,
            __base__=base,
            __module__=base.__module__,
            __doc__=base.__doc__,
            **fields,
        )
        return made

    return extended


def _refuse_taken(ability: Ability, known: Mapping[str, Any]) -> None:
    taken = [key for key in ability.fields if key in known]
    if taken:
        raise UserError(
            f"The ability {type(ability).__name__} of {type(ability).__module__} adds the key "
            f"{taken[0]!r}, which recipes have already; rename it, or uninstall its package."
        )


def _of_module(module: ModuleType) -> Iterator[Ability]:
    for found in vars(module).values():
        if not isinstance(found, type) or found.__module__ != module.__name__:
            continue
        if issubclass(found, Ability):
            yield found()


def _installed(point: EntryPoint) -> Ability:
    """Return another package's ability; where it cannot be imported, one that refuses its key."""
    try:
        made: Ability = imported(point, "an ability")()
    except UserError as error:
        return _broken(point.name, str(error))
    return made


def _broken(name: str, told: str) -> Ability:
    def refuse(value: Any) -> Any:
        raise ValueError(told)

    field = (Annotated[Any, BeforeValidator(refuse)], Field(None, description=told))
    kind: type[Ability] = type(f"Broken{name}", (Ability,), {"fields": {name: field}})
    return kind()
