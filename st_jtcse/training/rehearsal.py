"""One real step of each stage, on a few rows and small models, before anything is written.

Collator, loss, optimizer, scheduler, evaluator, trackers and saving judge the recipe's words
themselves: what they refuse is told as a fault of the recipe, with their own reason.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import random
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch

from st_jtcse import data, processes
from st_jtcse.errors import UserError, short_of_memory
from st_jtcse.modules.shared_words import words_shared
from st_jtcse.recipe.faults import Fault, tell
from st_jtcse.recipe.load import LoadedRecipe
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.recipe.yaml_source import Loc
from st_jtcse.training.forecast import told_ahead
from st_jtcse.training.gears import gear_lines
from st_jtcse.training.small_run import REPLACED, SmallRun
from st_jtcse.training.stage_inputs import Inputs, is_local, load_inputs
from st_jtcse.training.stand_ins import WORDS
from st_jtcse.wording import shown

logger = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parents[1]
# The share of unknown tokens from which on it is remarked.
_REMARKABLE = 0.05


def rehearse(
    loaded: LoadedRecipe,
    names: Sequence[str],
    inputs: Mapping[str, Inputs] | None = None,
    done: set[str] | None = None,
) -> list[str]:
    """Take a few steps of each of these stages in a temporary folder, which is removed; nothing
    else changes.

    In a distributed run nothing is rehearsed: its processes could fail apart.

    Args:
        loaded: The recipe.
        names: Stages to rehearse; earlier ones that they start from are only assembled.
        inputs: What has been read of their data; rows are made up for a stage that is not among
            them. By default local files are read.
        done: Keys of stages that were rehearsed already, of this or another recipe; completed.

    Returns:
        Lines about the data and the time that the stages take; they are logged too, but of one of
        several recipes.

    Raises:
        UserError: A stage cannot go a step, told where the recipe says what is to blame.
    """
    alone, done, keys = done is None, set() if done is None else done, loaded.keys
    wanted = [name for name in names if keys[name] not in done]
    if inputs is None:
        read = [stage for stage in loaded.stages if stage.name in wanted and is_local(stage)]
        inputs = load_inputs(read, loaded.cache_dir)
    if not wanted or processes.count() > 1:
        return []
    seconds, encoding = _seconds(loaded, wanted, inputs)
    done.update(keys[name] for name in wanted)
    lines = told_ahead(loaded, wanted, inputs, seconds)
    texts = max((own.count or 0 for own in inputs.values()), default=0)
    if encoding is not None and len(wanted) == len(loaded.stages):
        lines += gear_lines(loaded, texts, seconds, encoding)
    if alone:
        for line in lines:
            logger.info("%s", line)
    return lines


def _seconds(
    loaded: LoadedRecipe, wanted: list[str], inputs: Mapping[str, Inputs]
) -> tuple[dict[str, float], float | None]:
    """Take the steps, log what is remarkable, and return the time that a stage's step took, and
    that of encoding a text, where it was measured.
    """
    seconds: dict[str, float] = {}
    with untouched() as folder:
        run = SmallRun(loaded, folder)
        for stage in needed(loaded, wanted):
            own, is_wanted = inputs.get(stage.name), stage.name in wanted
            with _faults_told(loaded, run, stage, own):
                found = _go(run, stage, own, train=is_wanted)
                if found is not None:
                    seconds[stage.name] = found
    for name, remark in run.remarks.items():
        logger.warning("%s: %s", name, remark)
    return seconds, run.encoding


@contextmanager
def _faults_told(
    loaded: LoadedRecipe, run: SmallRun, stage: StageSpec, inputs: Inputs | None
) -> Iterator[None]:
    """Tell what a stage refuses as a fault of the recipe, by the stage's name."""
    where = f"Stage {stage.name!r}"
    try:
        yield
    except UserError as error:
        told = [run.as_written(fault) for fault in error.faults]
        named = [each if where in each else f"{where}: {each}" for each in told]
        raise UserError(*named) from error
    except Exception as error:
        raise _told(loaded, run, stage, inputs, error) from error


def _go(
    run: SmallRun, stage: StageSpec, inputs: Inputs | None, *, train: bool = True
) -> float | None:
    model = run.start(stage)
    job, seconds = run.job(stage, model, inputs), None
    run.time_encoding(job)
    if train and stage.loss is not None:
        if inputs is not None and isinstance(inputs.sentences, data.Sentences):
            _look_at_words(run, stage, model, inputs.sentences)
        seconds = run.train(job)
    if train or stage.loss is None:
        job.finish()
    run.save(stage, model)
    return seconds


def _look_at_words(run: SmallRun, stage: StageSpec, model: Any, sentences: data.Sentences) -> None:
    """Refuse what the model cannot read, and remark on what of a text is lost."""
    if not model.supports(sentences.modality):
        raise UserError(
            f"Stage {stage.name!r}: the training data are {sentences.modality}s, which a "
            f"{model[0].config.model_type} model does not read; choose a model that does."
        )
    if sentences.modality != "text":
        return
    tokenizer, texts = getattr(model, "tokenizer", None), sentences.dataset["sentence"]
    share = data.unknown_share(tokenizer, texts)
    remarks = data.text_remarks(tokenizer, texts, model.max_seq_length)
    if share >= _REMARKABLE:
        remarks.append(
            f"the model's tokenizer does not know {100 * share:.0f} % of the text's tokens and "
            "reads all of them alike"
        )
    # Once for all stages that say the same.
    new = [remark for remark in remarks if remark not in "; ".join(run.remarks.values())]
    if new:
        run.remarks[stage.name] = "; ".join(new)


def _told(
    loaded: LoadedRecipe, run: SmallRun, stage: StageSpec, inputs: Inputs | None, error: Exception
) -> UserError:
    """Return the fault of the recipe that made a step fail; raises the error itself where it is
    none.

    An argument is to blame if the step can be gone without it.
    """
    if short_of_memory(error):
        raise error
    reason = run.as_written(
        f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".rstrip(": ")
    )
    index = [other.name for other in loaded.recipe.stages].index(stage.name)
    own = loaded.source.data["stages"][index].get("args")
    if (key := _argument_to_blame(run, stage, inputs, str(error))) is not None:
        is_own = isinstance(own, dict) and key in own
        loc: Loc = ("stages", index, "args", key) if is_own else ("args", key)
        found = f"a value that a step of training takes, found {shown(stage.args[key])}"
        return _fault(loaded, loc, found, reason)
    if stage.loss is None or isinstance(error, OSError) or _is_ours(error):
        raise error
    for key, value in stage.loss.arguments.items():
        without = {other: value for other, value in stage.loss.model_dump().items() if other != key}
        if _goes(run, stage.model_copy(update={"loss": type(stage.loss)(**without)}), inputs):
            found = f"a value that {stage.loss.type} takes, found {shown(value)}"
            return _fault(loaded, ("stages", index, "loss", key), found, reason)
    found = f"data that {stage.loss.type} takes ({stage.declaration.takes}), found others"
    return _fault(loaded, ("stages", index, "loss"), found, reason)


def _argument_to_blame(
    run: SmallRun, stage: StageSpec, inputs: Inputs | None, reason: str
) -> str | None:
    # The one that the reason names comes first.
    for key in sorted(stage.args.keys() - REPLACED, key=lambda key: (key not in reason, key)):
        without = {other: value for other, value in stage.args.items() if other != key}
        if _goes(run, stage.model_copy(update={"args": without}), inputs):
            return key
    return None


def _fault(loaded: LoadedRecipe, loc: Loc, text: str, reason: str) -> UserError:
    return UserError(*tell(loaded.source, [Fault(loc, f"expected {text} ({reason}). Correct it.")]))


def _goes(run: SmallRun, stage: StageSpec, inputs: Inputs | None) -> bool:
    try:
        _go(run, stage, inputs)
    except Exception:  # As many as there are libraries.
        return False
    return True


def _is_ours(error: Exception) -> bool:
    """Whether this package itself failed, which is no fault of a recipe."""
    return Path(traceback.extract_tb(error.__traceback__)[-1].filename).is_relative_to(_PACKAGE)


def needed(loaded: LoadedRecipe, names: Sequence[str]) -> list[StageSpec]:
    """Return stages and all they start from, in order."""
    found = set(names)
    for stage in reversed(loaded.stages):
        if stage.name in found:
            found.update(stage.earlier)
    return [stage for stage in loaded.stages if stage.name in found]


@contextmanager
def untouched() -> Iterator[Path]:
    """Keep what a run has of its process: random states, environment, settings of torch; and say
    nothing. Small models share their words meanwhile, and write into a folder that goes with it.
    """
    environment, deterministic = dict(os.environ), torch.are_deterministic_algorithms_enabled()
    python, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002  # The libraries draw from it.
    logged, frozen = logging.root.manager.disable, gc.get_freeze_count()
    with (
        torch.random.fork_rng(),
        warnings.catch_warnings(),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        if not frozen:
            # accelerate asks for a whole collection at every turn, which costs more than the step.
            gc.freeze()
        try:
            with (
                words_shared(WORDS),
                tempfile.TemporaryDirectory(
                    prefix="st-jtcse-", ignore_cleanup_errors=True
                ) as folder,
            ):
                yield Path(folder)
        finally:
            if not frozen:
                gc.unfreeze()
            logging.disable(logged)
            random.setstate(python)
            np.random.set_state(numbers)  # noqa: NPY002
            torch.use_deterministic_algorithms(deterministic)
            os.environ.clear()
            os.environ.update(environment)
