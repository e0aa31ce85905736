"""Checks across the blocks of a recipe, made on its resolved stages and told where their values are
written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from st_jtcse.data.column_names import LABELLED
from st_jtcse.errors import UserError
from st_jtcse.losses.declaration import LossDeclaration
from st_jtcse.recipe.ability import Need, abilities, given
from st_jtcse.recipe.blocks import WeightedModelSpec
from st_jtcse.recipe.choices import CHOICES, left_out_of
from st_jtcse.recipe.data_blocks import DataSpec
from st_jtcse.recipe.faults import Fault
from st_jtcse.recipe.named_arguments import argument_faults, loss_faults, model_faults
from st_jtcse.recipe.schema import STAGE_PREFIX, ModelSpec, StageSpec
from st_jtcse.recipe.yaml_source import Loc
from st_jtcse.wording import dotted, nearest, shown, unknown


@dataclass(frozen=True)
class PlacedStage:
    """A resolved stage, and what of it is written where."""

    index: int
    spec: StageSpec
    # Its block as written; what is not there is the recipe's.
    own: Mapping[str, Any]

    def at(self, *loc: str | int) -> Loc:
        """Return a location in the stage."""
        return ("stages", self.index, *loc)

    def where(self, block: str, key: str) -> Loc:
        """Return where a key of a block that the recipe has too is written."""
        own = self.own.get(block)
        if isinstance(own, dict) and key in own:
            return self.at(block, key)
        return (block, key)

    @property
    def loss(self) -> LossDeclaration | None:
        """What the stage's loss is; None if there is none, or none of this name."""
        with suppress(UserError):
            if self.spec.loss:
                return self.spec.declaration
        return None

    @property
    def loss_name(self) -> str:
        """Name of the loss; empty if there is none."""
        if self.spec.loss:
            return self.spec.loss.type
        return ""

    @property
    def needs(self) -> list[Mapping[Need, str]]:
        """What each ability that the stage asks for cannot do without."""
        return [ability.needs(self.spec) for ability in given(self.spec)]

    def has(self, key: str) -> bool:
        """Whether the stage has something under a key."""
        return bool(getattr(self.spec, key))

    def lacks(self, key: str) -> bool:
        """Whether nothing is under a key, not even something faulty, which is told already."""
        return not self.has(key) and not self.own.get(key)


def names(stages: Sequence[Any]) -> Iterator[Fault]:
    """Tell names of stages, as written, that cannot be folders of their own."""
    first: dict[str, int] = {}
    for index, stage in enumerate(stages):
        name = stage.get("name") if isinstance(stage, dict) else None
        if not isinstance(name, str):
            continue
        loc: Loc = ("stages", index, "name")
        # Names become folders, which some file systems tell apart by more than upper and lower case
        # only.
        folded = name.casefold()
        if folded in ("recipe.yaml", "results.json", "report.html", "run.log"):
            yield Fault(
                loc,
                f"expected a name free for a folder, found '{name}', a file of the run. Choose "
                "another.",
            )
        elif name.isascii() and name.isdigit():
            yield Fault(
                loc,
                f"expected a name that --set cannot read as a position, found '{name}'. Add a "
                "letter.",
            )
        elif folded in first:
            taken = f"found '{name}', taken by stages[{first[folded]}]"
            yield Fault(loc, f"expected a name of its own, {taken}. Choose another.")
        first.setdefault(folded, index)


def choices(stages: Sequence[StageSpec | None], recipe: Mapping[str, Any]) -> Iterator[Fault]:
    """Tell stages that ask for a choice that the recipe, as written, does not make, and a choice
    that leaves no stage.
    """
    read = [stage for stage in stages if stage is not None]
    asked: dict[str, Loc] = {}
    for index, stage in enumerate(stages):
        for key in stage.only.given if stage is not None and stage.only is not None else ():
            asked.setdefault(key, ("stages", index, "only", key))
    missing = {key: loc for key, loc in asked.items() if recipe.get(key) is None}
    for key, loc in missing.items():
        text = f"expected the recipe to choose '{key}', found none. Add '{key}' to its keys."
        yield Fault(loc, text)
    for key in CHOICES:
        if recipe.get(key) is not None and read and key not in asked:
            text = "expected stages whose 'only' names it, found none. Remove it."
            yield Fault((key,), text)
    if not missing and read and len(left_out_of(read, recipe)) == len(stages):
        told = " and ".join(f"{key}: {recipe[key]}" for key in asked)
        yield Fault(("stages",), f"expected a stage for '{told}', found none. Choose another.")


def references(
    stage: PlacedStage, all_names: Sequence[str], left_out: Collection[str] = ()
) -> Iterator[Fault]:
    """Tell models of a stage that no earlier one makes; `all_names` are those of the recipe's
    stages, in order, and `left_out` those of them that the run of this stage is without.
    """
    earlier = [name for name in all_names[: stage.index] if name not in left_out]
    for below, reference in stage.spec.models.items():
        target = reference.removeprefix(STAGE_PREFIX)
        if not reference.startswith(STAGE_PREFIX) or target in earlier:
            continue
        found = "a later stage" if target in all_names[stage.index :] else "no stage of this recipe"
        if target == stage.spec.name:
            found = "this stage itself"
        elif target in left_out:
            found = "a stage that its 'only' leaves out of this run"
        way = "No stage comes before; name a model."
        if earlier:
            way = f"Use one of: {', '.join(earlier)}."
        if near := nearest(target, earlier):
            way = f"Did you mean '{STAGE_PREFIX}{near}'?"
        yield Fault(
            stage.at(*below), f"expected an earlier stage, found {shown(reference)}, {found}. {way}"
        )


def stage_faults(stage: PlacedStage) -> Iterator[Fault]:
    """Tell what does not go together in a stage."""
    data, loss = stage.spec.data, stage.loss
    if stage.spec.reads_rows and data is None:
        way = "Add 'data: {train: FILE}' to either."
        yield Fault(
            stage.at(), f"expected training data of the stage or the recipe, found none. {way}"
        )
    if data is not None and loss is not None:
        yield from _rows(stage, data, loss)
        yield from _classes(stage, data)
    yield from _needs(stage)
    for ability in abilities():
        yield from (Fault(loc, text) for loc, text in ability.faults(stage))
    if stage.spec.loss is not None:
        found = loss_faults(stage.spec.loss, stage.spec.model.scores_pairs)
        yield from (Fault(stage.at("loss", key), text) for key, text in found)
        yield from _mini_batches(stage)
    blocks: dict[Loc, ModelSpec | WeightedModelSpec] = {("model",): stage.spec.model}
    for place, block in {**blocks, **stage.spec.frozen_models}.items():
        yield from (Fault(stage.at(*place, *loc), text) for loc, text in model_faults(block))
    yield from arguments(stage.own.get("args"), stage.at("args"))
    yield from _evaluation(stage)
    yield from _several_outputs(stage)


def arguments(args: Any, loc: Loc) -> Iterator[Fault]:
    """Tell what is wrong with training arguments as written at a place."""
    return (
        Fault((*loc, key), text)
        for key, text in argument_faults(args if isinstance(args, dict) else {})
    )


def push(repos: Any, all_names: Sequence[str]) -> Iterator[Fault]:
    """Tell repositories, the recipe's ``push.repos``, of stages that are none."""
    for name in repos if isinstance(repos, dict) else ():
        if name not in all_names:
            yield Fault(("push", "repos", name), unknown("a stage of this recipe", name, all_names))


def _mini_batches(stage: PlacedStage) -> Iterator[Fault]:
    given = stage.spec.loss.arguments if stage.spec.loss else {}
    size = given.get("mini_batch_size")
    batch = stage.spec.batch_size
    if isinstance(size, int) and isinstance(batch, int) and size > batch:
        way = "Lower it, or raise args.per_device_train_batch_size."
        yield Fault(
            stage.at("loss", "mini_batch_size"),
            f"expected at most the batch, {batch}, found {size}. {way}",
        )
    if stage.spec.args.get("gradient_checkpointing") and (
        size or given.get("mini_batch_num_tokens")
    ):
        text = (
            "expected false beside the loss's mini-batches, which are encoded twice too, found "
            "true. Remove it."
        )
        yield Fault(stage.where("args", "gradient_checkpointing"), text)


def _rows(stage: PlacedStage, data: DataSpec, loss: LossDeclaration) -> Iterator[Fault]:
    name = stage.loss_name
    if data.pairs is None:
        if loss.needs_rows:
            text = f"expected labelled rows for {name}, found sentences. Give 'pairs' instead."
            yield Fault(stage.where("data", "train"), text)
        return
    if loss.sentences:
        text = f"expected sentences for {name}, found pairs. Give 'train' instead."
        yield Fault(stage.where("data", "pairs"), text)
    if loss.labels not in (None, data.labels):
        loc = stage.where("data", "labels" if "labels" in data.model_fields_set else "pairs")
        found = f"found {shown(data.labels)}. Set it, or choose another loss."
        yield Fault(loc, f"expected 'labels: {loss.labels}' for {name}, {found}")
    elif loss.texts is not None:
        fewest, most = loss.texts
        columns = data.pairs[0].columns or LABELLED["scores" if data.bins else data.labels]
        count = len(columns) - (data.labels != "none")
        if count < fewest or count > (most or count):
            text = (
                f"expected {loss.takes} for {name}, found {count}. Name its columns in 'columns'."
            )
            yield Fault(stage.where("data", "pairs"), text)


def _needs(stage: PlacedStage) -> Iterator[Fault]:
    """Tell what abilities cannot do without and the stage lacks."""
    without_loss = [needs[Need.LOSS] for needs in stage.needs if Need.LOSS in needs]
    if stage.spec.loss is None and without_loss:
        key = without_loss[0]
        text = f"expected a loss beside '{key}', found null. Give the loss, or remove '{key}'."
        yield Fault(stage.at(), text)
    if stage.spec.loss is not None or stage.spec.model.scores_pairs:
        found = "a loss" if stage.spec.loss is not None else "a cross-encoder"
        for key in (needs[Need.EMBEDDINGS] for needs in stage.needs if Need.EMBEDDINGS in needs):
            text = (
                f"expected embeddings and 'loss: null' beside '{key}', found {found}. Remove one."
            )
            yield Fault(stage.at(), text)
    if stage.loss is None or stage.spec.data is None or stage.spec.data.pairs is None:
        return
    for key in (needs[Need.SENTENCES] for needs in stage.needs if Need.SENTENCES in needs):
        text = f"expected sentences in data.train beside '{key}', found pairs. Remove one."
        yield Fault(stage.at(key), text)


def _classes(stage: PlacedStage, data: DataSpec) -> Iterator[Fault]:
    classes = stage.spec.classes
    if classes is None:
        return
    count, key = classes
    if key and count < 2:
        text = (
            f"expected an output for each class of {stage.loss_name}, 2 or more, found {count}. "
            "Raise it."
        )
        yield Fault(stage.at(*key), text)
    elif data.bins is not None and data.bins > count:
        way = f", or set {dotted(stage.at(*key))} to {data.bins}" if key else ""
        text = (
            f"expected at most {count} classes for {stage.loss_name}, found {data.bins}. Lower "
            f"'bins'{way}."
        )
        yield Fault(stage.where("data", "bins"), text)


def _evaluation(stage: PlacedStage) -> Iterator[Fault]:
    args, evaluate = stage.spec.args, stage.spec.evaluate
    if evaluate is not None and evaluate.dev is not None:
        return
    places = f"{dotted(stage.at('evaluate'))}.dev or the recipe's evaluate.dev"
    for key, asking in {"eval_strategy": ("steps", "epoch"), "eval_on_start": (True,)}.items():
        if args.get(key) in asking:
            text = (
                f"expected pairs to evaluate on in {places}, found none. Add them, or remove "
                f"'{key}'."
            )
            yield Fault(stage.where("args", key), text)


def _several_outputs(stage: PlacedStage) -> Iterator[Fault]:
    outputs, evaluate = stage.spec.model.num_labels, stage.spec.evaluate
    if not stage.spec.model.scores_pairs or outputs < 2:
        return
    loc = stage.at("model", "num_labels")
    if stage.loss is not None and stage.loss.classes != "outputs":
        # Sentence-Transformers has but this loss for cross-encoders with several outputs.
        way = "Set 1, or choose CrossEntropyLoss."
        yield Fault(loc, f"expected 1 output for {stage.loss_name}, found {outputs}. {way}")
    elif evaluate is not None and (evaluate.dev is not None or evaluate.test):
        way = f"Set 1, or evaluate the stage on nothing by {dotted(stage.at('evaluate'))}: {{}}."
        yield Fault(
            loc, f"expected 1 output, the score that 'evaluate' correlates, found {outputs}. {way}"
        )
