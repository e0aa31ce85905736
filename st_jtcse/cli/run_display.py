"""How far a run is, in one line below what it has said: on a terminal alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_jtcse.cli import console
from st_jtcse.training.stage_lines import dev_of

_NARROW = Column(no_wrap=True, overflow="ellipsis")


class _Display(TrainerCallback):
    """Moves the bar of the stage at work; between stages it only shows that the run lives."""

    def __init__(self, progress: Progress, stages: Sequence[str]) -> None:
        self._progress = progress
        self._stages = stages
        self._told: dict[str, float] = {}
        self._task = progress.add_task(f"before {stages[0]}", total=None, told="")  # No total: the bar pulses.

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Take up a stage, at the step that it goes on from."""
        name = Path(str(args.output_dir)).name
        self._told = {}
        told = f"{self._stages.index(name) + 1}/{len(self._stages)} {name}"
        self._turn_to(told, state.max_steps, state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Count a step."""
        self._progress.update(self._task, completed=state.global_step)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Show the loss."""
        self._tell(loss=(kw.get("logs") or {}).get("loss"))

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Show the best of dev so far."""
        found = dev_of(args, kw.get("metrics") or {})
        self._tell(dev=None if found is None else max(found, self._told.get("dev", found)))

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Say that the stage is saved and the next prepared."""
        self._turn_to(f"after {Path(str(args.output_dir)).name}")

    def _turn_to(self, told: str, total: int | None = None, completed: int = 0) -> None:
        before = self._task
        self._task = self._progress.add_task(told, total=total, completed=completed, told="")
        self._progress.remove_task(before)

    def _tell(self, **found: float | None) -> None:
        self._told |= {name: value for name, value in found.items() if value is not None}
        told = " ".join(f"{name} {value:.4g}" for name, value in self._told.items())
        self._progress.update(self._task, told=told)


@contextmanager
def displayed(stages: Sequence[str], *, speaks: bool) -> Iterator[list[TrainerCallback]]:
    """Show how far the training of some stages is, by the callbacks given, where stderr is a terminal."""
    columns = (
        TextColumn("{task.description}", markup=False, table_column=_NARROW),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[told]}", markup=False, table_column=_NARROW),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
    )
    quiet = not (speaks and console.err.is_interactive)
    with Progress(*columns, console=console.err, transient=True, expand=True, disable=quiet) as progress:
        yield [_Display(progress, stages)]
