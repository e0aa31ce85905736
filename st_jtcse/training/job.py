"""A stage at work: what its training has, and what its abilities make of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

from st_jtcse import data
from st_jtcse.errors import UserError
from st_jtcse.recipe.ability import Ability, used
from st_jtcse.recipe.blocks import WeightedModelSpec
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.models import Resolve, load_frozen
from st_jtcse.training.stage_inputs import Inputs, beside_start, check_batch


@dataclass
class Job:
    """A stage at work, from its start to its saved model; abilities change it in their turn."""

    stage: StageSpec
    inputs: Inputs
    model: Any
    folder: Path  # the stage's, for its checkpoints
    cache_dir: Path  # of what is computed once and shared by runs
    seed: int
    resolve: Resolve  # from a model's name in the recipe to its folder or Hub id
    # Whether this is a rehearsal, by models and rows that stand in.
    small: bool = False
    made_up: bool = False  # whether its rows are made up, because none are read

    loss: Any = None  # what is trained by: the recipe's loss, or one around it
    own_loss: Any = None  # the recipe's loss itself
    arguments: Any = None  # the trainer's
    dataset: Any = None  # rows in the columns that the loss trains on
    digest: str = ""  # hash of the data set's sentences
    # Rows without an end, read in place of the data set.
    stream: IterableDataset | None = None
    # How sentences are turned into the columns that are made of text alone.
    columns_of: Callable[[data.Sentences], Dataset] = lambda sentences: sentences.dataset
    collator: Any = None  # None: the trainer's own
    # What is put around the collator, whichever it is, once there is a trainer.
    collators: list[Callable[[Any], Any]] = field(default_factory=list)
    callbacks: list[TrainerCallback] = field(default_factory=list)
    # What the training runs in.
    during: list[Callable[[], AbstractContextManager[None]]] = field(default_factory=list)
    # What is saved beside the model, by name.
    files: dict[str, Path] = field(default_factory=dict)
    # What the stage's record says of it.
    record: dict[str, Any] = field(default_factory=dict)
    # What an ability leaves to those whose turn comes later, as long as the rows are prepared.
    shared: dict[Any, Any] = field(default_factory=dict)

    @property
    def abilities(self) -> list[Ability]:
        """The abilities that have something to do."""
        return used(self.stage)

    @property
    def sentences(self) -> data.Sentences:
        """What the stage trains on, where that is sentences."""
        found = self.inputs.sentences
        assert isinstance(found, data.Sentences)
        return found

    def load(self, spec: WeightedModelSpec) -> SentenceTransformer:
        """Load a model that is not trained."""
        return load_frozen(spec, self.resolve)

    def begin(self) -> None:
        """Let the abilities do what comes before the start is scored, by which some sets are."""
        self.inputs = beside_start(self.stage, self.inputs, self.model)
        for ability in self.abilities:
            ability.begin(self)

    def prepare(self) -> None:
        """Compute the columns that the loss trains on; in a rehearsal, make them up.

        What was computed before is read from the cache. Raises UserError if a model cannot be
        loaded or does not fit, or the disk is full.
        """
        rows = self.inputs.sentences
        if rows is None:
            raise UserError(f"Stage {self.stage.name!r} has no training sentences; give it data.")
        self.dataset, self.digest = rows.dataset, rows.sha256
        self.record |= rows.left_out
        for ability in self.abilities:
            if self.small:
                ability.stand_in(self)
                continue
            ability.prepare(self)
            if rows.count is not None:
                # It may have left rows out.
                check_batch(self.stage, len(self.dataset))
        self.shared.clear()  # Models among it, which take memory.

    def wrap(self) -> None:
        """Let the abilities change what is trained, and how."""
        for ability in self.abilities:
            ability.wrap(self)

    def finish(self) -> None:
        """Let the abilities change the model that comes of it."""
        for ability in self.abilities:
            ability.finish(self)
