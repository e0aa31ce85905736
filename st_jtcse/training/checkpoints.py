"""Checkpoints that are known to be whole: the last file that each gets is a manifest of the hashes
of all others.

Nothing is loaded that the manifest does not vouch for, and no older checkpoint is deleted before
the manifest is there.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ValidationError
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from st_jtcse import processes
from st_jtcse.atomic import write_atomically
from st_jtcse.errors import UserError
from st_jtcse.hashing import sha256
from st_jtcse.hub.card_results import TRAINING_RECORD
from st_jtcse.hub.cards import CARD
from st_jtcse.hub.model_files import MODEL_FILES
from st_jtcse.ownership import claim, in_the_way, is_ours, remove_folder, vouched
from st_jtcse.records import Count, Number, Stored, read
from st_jtcse.training.provenance import environment

logger = logging.getLogger(__name__)

MANIFEST = "checkpoint_manifest.json"
LOSS_SUM = "loss_sum.txt"
_STATE = "trainer_state.json"
# What only a training saves, beside a model's own files.
_OF_TRAINING = re.compile(
    r"[\w-]+\.(pt|pth|bin)|[\w-]+_config\.json|\..+\.partial"
    rf"|{re.escape(_STATE)}|{re.escape(MANIFEST)}|{re.escape(TRAINING_RECORD)}|{re.escape(CARD)}"
    rf"|{re.escape(LOSS_SUM)}"
)


def is_saved(name: str) -> bool:
    """Whether a file in a checkpoint or a model's folder has a name under which such are saved."""
    return bool(MODEL_FILES.fullmatch(name) or _OF_TRAINING.fullmatch(name))


class _File(BaseModel):
    size: int  # In bytes.
    sha256: str


class _Manifest(BaseModel):
    resumable: bool  # Whether the optimizer's and all other state is there too.
    data_sha256: dict[str, str]  # Of the stage's data sets, by name.
    environment: dict[str, str | int]  # What results may depend on beside them.
    files: dict[str, _File]  # All others of the checkpoint, by path.


class _State(Stored):
    """What is read of a trainer's state, beside transformers."""

    called: ClassVar[str] = "a trainer's state"

    global_step: Count
    max_steps: Count
    best_global_step: Count | None = None
    best_metric: Number | None = None
    log_history: list[dict[str, Number]]


class Checkpoints(TrainerCallback):
    """Completes each checkpoint by its manifest, and deletes older ones only then.

    It stands behind whatever else adds files to a checkpoint.

    Args:
        data_sha256: Hashes of the stage's data sets, by name.
        limit: How many checkpoints are kept, the best and the last among them; None: all. It takes
            the place of the trainer's `save_total_limit`, which deletes the older checkpoint before
            the new one is complete.
    """

    def __init__(self, data_sha256: Mapping[str, str], limit: int | None) -> None:
        self._data, self._limit = dict(data_sha256), limit
        self._beside: list[str] = []

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Claim the folder of a checkpoint that may be saved now."""
        if processes.rank() == 0 and (control.should_save or control.should_evaluate):
            place = checkpoint_at(Path(str(args.output_dir)), state.global_step)
            # What somebody put there is none of the checkpoint's.
            self._beside = _files(place)
            claim(place)

    on_epoch_end = on_step_end

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the manifest, and delete what the limit does not leave."""
        processes.wait_for_all()  # Each has written its random state.
        if processes.rank() == 0:
            self._complete(args, state)
        processes.wait_for_all()  # Whoever goes on may read it.

    def _complete(self, args: TrainingArguments, state: TrainerState) -> None:
        stage = Path(str(args.output_dir))
        last = checkpoint_at(stage, state.global_step)
        files = {
            name: _File(size=(last / name).stat().st_size, sha256=sha256(last / name))
            for name in _files(last)
        }
        manifest = _Manifest(
            resumable=not args.save_only_model,
            data_sha256=self._data,
            environment=environment(),
            files=files,
        )
        text = manifest.model_dump_json(indent=2) + "\n"
        own = [name for name in files if name not in self._beside]
        claim(last, own, hashlib.sha256(text.encode()).hexdigest())
        write_atomically(last / MANIFEST, text)
        if self._limit is not None and self._limit > 0:
            kept = {last, checkpoint_at(stage, state.best_global_step or state.global_step)}
            others = [path for path in _complete(stage) if path not in kept]
            for path in others[: max(0, len(others) + len(kept) - self._limit)]:
                remove_folder(path, is_saved)


def checkpoint_at(stage: Path, step: int) -> Path:
    """Return the folder of a stage's checkpoint, wherever the stage's folder lies now."""
    return stage / f"checkpoint-{step}"


def last_whole(stage: Path) -> Path | None:
    """Return the last checkpoint in a stage's folder that can be gone on from, None if there is
    none.

    Later ones, which are not whole, are deleted, and that is said. Raises UserError if the best
    checkpoint until then, which may become the stage's result, is not whole, and where another
    training's checkpoint lies in the place of one of this.
    """
    if processes.rank() == 0:
        _pass_over(stage)
    processes.wait_for_all()
    return max(_complete(stage), key=_step, default=None)


def claim_older(checkpoints: Iterable[Path]) -> None:
    """Claim what the manifests of an earlier version's checkpoints tell."""
    for path in checkpoints:
        if (path / MANIFEST).is_file():
            claim(path, _files(path), sha256(path / MANIFEST))


def state_of(checkpoint: Path) -> TrainerState:
    """Return the state of the training at a checkpoint; raises UserError for one that this version
    of transformers cannot read.
    """
    way_out = (
        f"go on with the versions that {MANIFEST} names, or delete {checkpoint} and repeat the "
        "command with --resume"
    )
    read(_State, checkpoint / _STATE, way_out)
    try:
        return TrainerState.load_from_json(str(checkpoint / _STATE))
    except TypeError as error:  # A key that another version has.
        told = f"{checkpoint / _STATE} is of another version of transformers ({error})"
        raise UserError(f"{told}; {way_out}.") from None


def check_best(stage: Path, step: int) -> Path:
    """Return the checkpoint that scored best, at a step; raises UserError if it is not as it was
    saved.
    """
    best = checkpoint_at(stage, step)
    fault = _fault(best)
    if fault:
        raise UserError(
            f"{best}, the checkpoint that scored best, is lost ({fault}), and its weights are the "
            f"result of stage {stage.name!r}; delete {stage} and repeat the command with --resume "
            "to train the stage again."
        )
    return best


def check_circumstances(checkpoint: Path, data_sha256: Mapping[str, str]) -> None:
    """Raise UserError if the data are others than the checkpoint's, and say what else may make a
    difference.
    """
    saved = _read(checkpoint)
    same_data(checkpoint, saved.data_sha256, data_sha256)
    now = environment()
    others = [
        f"{key} {saved.environment.get(key)} (now {now.get(key)})"
        for key in {**saved.environment, **now}
        if saved.environment.get(key) != now.get(key)
    ]
    if others and processes.rank() == 0:
        logger.warning(
            "%s was saved with %s: the weights may differ from those of an uninterrupted run",
            checkpoint,
            ", ".join(others),
        )


def same_data(place: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise UserError where what a place was trained on and with has changed; both are hashes by
    name.
    """
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if changed:
        raise UserError(
            f"{place} was made with other data ({', '.join(changed)} changed since); restore them, "
            "or start anew in another folder with --output-dir."
        )


def _pass_over(stage: Path) -> None:
    passed: dict[Path, str] = {}
    found = None
    for path in reversed(_by_step(stage)):
        fault = _fault(path) or ("it holds the model only" if not _read(path).resumable else None)
        if fault is None:
            found = path
            break
        passed[path] = fault
    if found is not None and (best := state_of(found).best_global_step):
        check_best(stage, best)
    for file in (file for path in passed for file in path.rglob("*")):
        # The trainer, which goes through that step again, would write to what a link leads to.
        if file.is_symlink() or not (file.is_file() or file.is_dir()):
            raise in_the_way(file)
    for path in passed:
        remove_folder(path, is_saved)
    if passed:
        told = ", ".join(f"{path.name} ({fault})" for path, fault in passed.items())
        goes_on = "starts from its beginning" if found is None else f"goes on from {found.name}"
        logger.warning("%s: skipped incomplete checkpoints, %s; the stage %s", stage, told, goes_on)


def _fault(checkpoint: Path) -> str | None:
    """Return why a checkpoint is not as it was saved, in a few words, or None."""
    if not checkpoint.is_dir():
        return "it is missing"
    try:
        named = _read(checkpoint).files
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (OSError, ValidationError, UnicodeDecodeError):
        return f"{MANIFEST} cannot be read"
    for name, file in named.items():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != file.size or sha256(path) != file.sha256:
            return f"{name} is damaged"
    added = sorted(set(_files(checkpoint)) - named.keys())
    if added:
        return f"{added[0]} was added"
    if sha256(checkpoint / MANIFEST) not in vouched(checkpoint):
        raise in_the_way(checkpoint)
    return None


def _read(checkpoint: Path) -> _Manifest:
    return _Manifest.model_validate_json((checkpoint / MANIFEST).read_text(encoding="utf-8"))


def _files(checkpoint: Path) -> list[str]:
    """Return the paths of all files but the manifest, and what file managers hide, in a
    checkpoint.
    """
    paths = (
        path for path in checkpoint.rglob("[!.]*") if not path.is_dir() and path.name != MANIFEST
    )
    return sorted(path.relative_to(checkpoint).as_posix() for path in paths)


def is_checkpoint(name: str) -> bool:
    """Whether a file or folder is called as the trainer calls checkpoints."""
    return re.fullmatch(r"checkpoint-\d+", name) is not None


def _by_step(stage: Path) -> list[Path]:
    found = (path for path in stage.glob("checkpoint-*") if is_checkpoint(path.name))
    return sorted((path for path in found if is_ours(path)), key=_step)


def _complete(stage: Path) -> list[Path]:
    return [path for path in _by_step(stage) if (path / MANIFEST).is_file()]


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])
