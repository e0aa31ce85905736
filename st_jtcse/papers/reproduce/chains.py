"""The papers' own size: the commands of items, one after the other in one folder."""

from __future__ import annotations

import logging
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from st_jtcse.errors import UserError
from st_jtcse.papers.reproduce.items import Item
from st_jtcse.recipe.load import LoadedRecipe, read_recipe
from st_jtcse.recipe.schema import STAGE_PREFIX

logger = logging.getLogger(__name__)

MODULES = {
    "st-train": "st_jtcse.cli.train",
    "st-eval": "st_jtcse.cli.eval",
    "st-diagnose": "st_jtcse.papers.cli.diagnose",
    "st-convergence": "st_jtcse.papers.cli.convergence",
}
# Graded pairs that commands read, and where they are from.
PAIRS = {
    "pairs.jsonl": ("mteb/stsbenchmark-sts", None, "test"),
    "paws.jsonl": ("google-research-datasets/paws", "labeled_final", "test"),
}
# Of one stage of a base model on a million sentences, of a language to translate into and back, of
# a model's files; estimates, not measured.
_HOURS_OF_STAGE, _HOURS_OF_PIVOT, _GIGABYTES_OF_MODEL = 1.0, 6.0, 0.5


def commands_of(items: Iterable[Item]) -> list[str]:
    """Return the commands of items, each once, in their order."""
    return list(dict.fromkeys(command for item in items for command in item.commands))


def check_reachable(items: Sequence[Item]) -> None:
    """Raise UserError, with what it would take, where there is no accelerator or no Hub."""
    import torch

    lacks = []
    if not torch.accelerator.is_available():
        lacks.append("an accelerator (a GPU)")
    if not _hub_answers():
        lacks.append("the Hub")
    if lacks:
        hours, gigabytes = forecast(commands_of(items))
        raise UserError(
            f"--size paper: expected {' and '.join(lacks)}, found none. It would take about "
            f"{hours:.0f} hours of one GPU and {gigabytes:.0f} GB of downloads, by estimate; use "
            "--size mini here."
        )


def _hub_answers() -> bool:
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # As many as there are ways not to be there.
        return False
    return True


def forecast(commands: Sequence[str]) -> tuple[float, float]:
    """Return hours of training and translation, and gigabytes of models, that commands take."""
    hours, models = 0.0, set[str]()
    for words in map(shlex.split, commands):
        if words[0] != "st-train" or words[1].startswith("--") or "--dry-run" in words:
            continue
        loaded = read_recipe(words[1], [at for at in words if "=" in at])
        stages = [at for before, at in pairwise(words) if before == "--stage"]
        chosen = [stage for stage in loaded.stages if not stages or stage.name in stages]
        trained = [stage for stage in chosen if stage.loss is not None]
        hours += _HOURS_OF_STAGE * len(trained) * _points(loaded)
        for stage in trained:
            if augment := getattr(stage, "augment", None):
                hours += _HOURS_OF_PIVOT * len(augment.pivots)
        for stage in chosen:
            names = stage.models.values()
            models |= {name for name in names if not name.startswith((STAGE_PREFIX, "runs/"))}
    return hours, _GIGABYTES_OF_MODEL * len(models)


def _points(loaded: LoadedRecipe) -> int:
    points = [math.prod(map(len, block.values())) for block in loaded.recipe.sweep or [{}]]
    return sum(points) * len(loaded.recipe.seeds or [0])


def run_commands(commands: Sequence[str], folder: Path) -> dict[str, str]:
    """Run commands in a folder, and return those that failed, with their exit statuses; what is
    there already is gone on with.
    """
    failed: dict[str, str] = {}
    for name in PAIRS:
        if any(name in command for command in commands) and not (folder / name).is_file():
            _fetch(folder / name)
    for number, command in enumerate(commands, 1):
        logger.info("[%d/%d] %s", number, len(commands), command)
        done = subprocess.run(words_of(command, folder), cwd=folder, env=os.environ, check=False)
        if done.returncode == 130:
            raise KeyboardInterrupt
        if done.returncode:
            failed[command] = f"ended with status {done.returncode}"
            logger.warning("%s: %s", command, failed[command])
    return failed


def words_of(command: str, folder: Path) -> list[str]:
    """Return a command as it is started in a folder: a run that is there is gone on with, and
    results of evaluations have a folder.
    """
    program, *words = shlex.split(command)
    if program == "st-train" and "--dry-run" not in words and not words[0].startswith("--"):
        words += ["--resume"]
    if program == "st-eval" and not words[0].startswith("--"):
        words += ["--output-dir", results_of(command)]
    return [sys.executable, "-m", MODULES[program], *words]


def results_of(command: str) -> str:
    """Return the folder of an evaluation's results."""
    model, *words = shlex.split(command)[1:]
    pooling = words[words.index("--pooling") + 1] if "--pooling" in words else ""
    suites = [after for before, after in pairwise(words) if before == "--suite"]
    return "/".join(["results", re.sub(r"\W+", "-", f"{model} {pooling}").strip("-"), *suites[:1]])


def _fetch(path: Path) -> None:
    from datasets import load_dataset

    name, config, split = PAIRS[path.name]
    rows = load_dataset(name, config, split=split)
    if "label" in rows.column_names:
        rows = rows.rename_column("label", "score")
    rows.select_columns(["sentence1", "sentence2", "score"]).to_json(path)
