"""A stage in small: a model of few layers, two steps on a few rows, an evaluation, a checkpoint, a
saved model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

from st_jtcse import data, embedded
from st_jtcse.modules.shared_words import share_words
from st_jtcse.recipe.blocks import DEV
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import STAGE_PREFIX, StageSpec
from st_jtcse.training.job import Job
from st_jtcse.training.model_kinds import kind_of
from st_jtcse.training.models import start_model
from st_jtcse.training.rates import seconds_by, texts_a_second
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.stage_inputs import Inputs
from st_jtcse.training.stage_training import prepare, train
from st_jtcse.training.stand_ins import ROWS, few_inputs, few_pairs, small_copy

# Arguments that are given other values for the step: they say how long and how much, or where logs
# go.
REPLACED = {
    "per_device_train_batch_size", "gradient_accumulation_steps", "dataloader_num_workers",
    "disable_tqdm",
    "torch_compile", "torch_compile_backend", "torch_compile_mode", "logging_dir",
}  # fmt: skip


class _FewSteps(TrainerCallback):
    """Evaluates and saves after the first step, if the arguments say so of any, and times
    the others.
    """

    def __init__(self, steps: int) -> None:
        self._steps, self._began = steps, 0.0
        # Of a step; None where there were too few.
        self.seconds: float | None = None

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        for group in kw["optimizer"].param_groups:
            # A rate that is too high is for the run to tell, by its own model.
            group["lr"] = 0.0
        if state.global_step == 1:
            self._began = seconds_by(on_cpu=args.device.type == "cpu")

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        first = control.should_log = state.global_step == 1
        control.should_evaluate = first and args.eval_strategy != "no"
        control.should_save = first and args.save_strategy != "no"
        if state.global_step == self._steps:
            control.should_training_stop = True
            taken = seconds_by(on_cpu=args.device.type == "cpu") - self._began
            self.seconds = taken / (self._steps - 1)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any
    ) -> None:
        control.should_evaluate = control.should_save = False


class SmallRun:
    """The stages of a recipe in small, in a folder of their own."""

    # The most rows of a step, and its steps: the first is tried, the others are timed.
    most_rows, steps = 8, 2
    # Keys of a stage that are others for the steps, and arguments.
    instead: Mapping[str, Any] = {}
    arguments: Mapping[str, Any] = {}

    def __init__(self, loaded: LoadedRecipe, folder: Path) -> None:
        self._folder = folder
        self._stages = loaded.stages
        self._copies: dict[Any, str] = {}
        self._deeper: dict[
            str, float
        ] = {}  # by model or stage: how many times the layers of the small one
        self._attempts = 0
        # Seconds of a text that the recipe's first model embeds, where its gears are told by it.
        self.encoding: float | None = None
        self._is_timed = bool(loaded.recipe.gained)
        # What is to be said of stages that go, by their names.
        self.remarks: dict[str, str] = {}
        self._card = folder / ".card.md"
        self._card.touch()
        # How a place in the folder is called outside.
        self._called: dict[str, str] = {
            str(folder / stage.name): str(Path(loaded.recipe.output_dir) / stage.name)
            for stage in loaded.stages
        }

    def as_written(self, text: str) -> str:
        """Return a message with the recipe's models in place of the small ones."""
        for place, called in sorted(self._called.items(), reverse=True):
            text = text.replace(place, called)
        return text

    def start(self, stage: StageSpec) -> Any:
        """Assemble a stage's model."""
        set_seed(0)
        model = start_model(stage, self._resolver(stage), 0)
        names = [name.removeprefix(STAGE_PREFIX) for name in stage.model.models.values()]
        self._deeper[stage.name] = (
            1.0 if stage.model.layers else max(self._deeper.get(name, 1.0) for name in names)
        )
        share_words(model)
        # The trainer writes a card beside every checkpoint; here nobody reads it.
        model.model_card_data.template_path = self._card
        return model

    def job(self, stage: StageSpec, model: Any, inputs: Inputs | None) -> Job:
        """Return a stage at work in small, in a folder of its own."""
        self._attempts += 1
        return Job(
            stage=stage,
            inputs=inputs or Inputs(None, {}, {}),
            model=model,
            folder=RunFolder(self._folder / f".{self._attempts}").stage(stage.name),
            cache_dir=self._folder / ".cache",
            seed=0,
            resolve=self._resolver(stage),
            small=True,
            made_up=inputs is None or inputs.sentences is None,
        )

    def time_encoding(self, job: Job) -> None:
        """Take the time of a few texts, once, by the first stage that has some."""
        stage = job.stage
        if not self._is_timed or self.encoding is not None or stage.model.scores_pairs:
            return
        rate = texts_a_second(job, lambda some: job.model.encode(some, show_progress_bar=False))
        if rate is not None:
            self.encoding = self._deeper[stage.name] / rate

    def train(self, job: Job) -> float | None:
        """Train it for a few steps, in place, and evaluate it; what the libraries raise is passed
        on.

        Returns about how many seconds a step of the whole stage takes; None where too few rows are
        read.
        """
        stage = job.stage
        for tracker in get_reporting_integration_callbacks(stage.args.get("report_to", "none")):
            # Says whether it is installed; its first word to a server would be part of a real run.
            tracker()
        batch = stage.batch_size
        wanted = min(batch, self.most_rows)
        rows = min(wanted, ROWS) if job.made_up else wanted
        job.inputs = few_inputs(stage, job.inputs, self.steps * wanted)
        args = {key: value for key, value in stage.args.items() if key not in REPLACED} | {
            "per_device_train_batch_size": rows,
            "dataloader_num_workers": min(int(stage.args.get("dataloader_num_workers", 0)), 1),
            "disable_tqdm": True,
            "report_to": "none",
            **self.arguments,
        }
        job.stage = stage.model_copy(update={"args": args, **self.instead})
        prepare(job)
        evaluator = kind_of(stage.model).evaluator(DEV, few_pairs(job.dataset))
        job.inputs.evaluators = {DEV: evaluator}
        if stage.evaluate is not None and stage.evaluate.sets:
            # Of made-up pairs: a score need not be defined, as where no word is known.
            evaluator(job.model)
        steps = _FewSteps(self.steps)
        train(job, [steps])
        if steps.seconds is None or rows < wanted:
            return None
        times = batch / rows * int(stage.args.get("gradient_accumulation_steps", 1))
        return steps.seconds * times * self._deeper[stage.name]

    def save(self, stage: StageSpec, model: Any) -> None:
        """Save it where later stages find it."""
        folder = self._folder / stage.name
        folder.mkdir(exist_ok=True)
        kind_of(stage.model).save(model, folder)

    def _resolver(self, stage: StageSpec) -> Callable[[str], str]:
        blocks: dict[str, Any] = dict.fromkeys(stage.model.models.values(), stage.model)
        members = stage.model.members or ()
        for frozen in (*members, *stage.frozen_models.values()):
            blocks[frozen.model] = frozen
        every_word = stage.declaration.tokens

        def depth(name: str, layers: int) -> int:
            small = self._depth(layers)
            self._deeper[name] = max(layers / small, self._deeper.get(name, 1.0))
            return small

        def resolve(name: str) -> str:
            if name.startswith(STAGE_PREFIX):
                return str(self._folder / name.removeprefix(STAGE_PREFIX))
            block = blocks[name]
            key = (name, block.revision, block.trust_remote_code, every_word)
            if key not in self._copies:
                target = self._folder / f".model-{len(self._copies)}"
                self._called[str(target)] = name
                self._copies[key] = small_copy(
                    name,
                    target,
                    partial(depth, name),
                    all_words=every_word,
                    revision=block.revision,
                    trust_remote_code=block.trust_remote_code,
                )
            return self._copies[key]

        return resolve

    def _depth(self, layers: int) -> int:
        """Return the least depth that has all layers the recipe names, and is divided by what
        divides the whole one.
        """
        models = [stage.model for stage in self._stages]
        named = [layer + 1 for model in models for layer in model.layers or ()]
        periods = [
            model.cross_attention_every
            for model in models
            if model.towers and model.cross_attention_every
        ]
        for depth in range(max([2, *named]), layers):
            if all((depth % period == 0) == (layers % period == 0) for period in periods):
                return depth
        return layers


class WholeRun(SmallRun):
    """The stages of a recipe on the models and the batches that they are of."""

    most_rows, steps = sys.maxsize, 4
    instead: Mapping[str, Any] = {"evaluate": None}
    arguments: Mapping[str, Any] = {
        "max_steps": steps,
        "eval_strategy": "no",
        "save_strategy": "no",
    }

    def train(self, job: Job) -> float | None:
        """Train it for a few steps on rows of all parts of its data: texts may come by length."""
        rows = job.inputs.sentences
        if rows is not None:
            step = max(1, len(rows.dataset) // (self.steps * job.stage.batch_size))
            spread = rows.dataset.select(range(0, len(rows.dataset), step))
            job.inputs = replace(job.inputs, sentences=data.Labelled(spread, 0, "", {}))
        return super().train(job)

    def _resolver(self, stage: StageSpec) -> Callable[[str], str]:
        def resolve(name: str) -> str:
            if name.startswith(STAGE_PREFIX):
                return str(self._folder / name.removeprefix(STAGE_PREFIX))
            return embedded.place(name)

        return resolve
