"""Weights that belong to a loss, in the trainer's checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

FILE = "loss.safetensors"


class LossWeights(TrainerCallback):
    """Saves with each checkpoint what a loss learns beside its model, such as EmbedDistillLoss's projection.

    The trainer trains those weights but saves the model's alone, so that a resumed run would start them anew.

    Args:
        loss: The loss of the run.
    """

    def __init__(self, loss: nn.Module) -> None:
        self._loss = loss

    @property
    def files(self) -> tuple[str, ...]:
        """Files that a whole checkpoint of this loss has beside the trainer's."""
        return (FILE,) if self._own() else ()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the loss's own weights into the checkpoint."""
        weights = self._own()
        if weights and state.is_world_process_zero:
            folder = Path(str(args.output_dir), f"checkpoint-{state.global_step}")
            partial = folder / f".{FILE}.partial"
            save_file({name: tensor.contiguous() for name, tensor in weights.items()}, partial)
            partial.replace(folder / FILE)

    def load(self, checkpoint: Path) -> None:
        """Read them back.

        Args:
            checkpoint: The checkpoint that the run goes on from.
        """
        if self.files:
            self._loss.load_state_dict(load_file(checkpoint / FILE), strict=False)

    def _own(self) -> dict[str, Any]:
        return {name: tensor for name, tensor in self._loss.state_dict().items() if not name.startswith("model.")}
