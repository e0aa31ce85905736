"""Every way of training without labels, in the same time: the embedded model, a text, and labelled
sets that score.

Run: python benchmarks/same_time.py --text NAME=TRAIN.txt,TEST.jsonl[,TEST.jsonl...] [--text ...]
--models FOLDER A cell is a way, a text and a seed, trained by a process of its own: it has so many
seconds of one core from loading the libraries to its last step, 3,000 sentences drawn once, and
mean pooling. Chains divide what is left between their stages by the steps that these take in the
recipe on 10,000 sentences; rates that fall reach nothing at the end of the time. Nothing chooses a
checkpoint, the last one counts. bfloat16 where the processor computes in it, teachers' vectors too.
Each test set gives a score as in `st-eval --data`, times 100, and a cell their mean. A cell that is
in the results already is not trained again; the figures go into benchmarks/results.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from kept import RESULTS, keep
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

from st_jtcse import embedded
from st_jtcse.data.rows import Source
from st_jtcse.evaluation import load_own_set
from st_jtcse.recipe.load import LoadedRecipe, load_recipe
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.forecast import steps_of
from st_jtcse.training.runner import run
from st_jtcse.training.stage_arguments import bf16_choice

WAYS = {
    "SimCSE": "simcse-mini",
    "SimCSE with crops": "crop-mini",
    "TSDAE": "tsdae-mini",
    "LS-RNS": "lsrns-mini",
    "RankCSE (ListMLE)": "rankcse-listmle-mini",
    "TNCSE-D": "tncse-mini",
    "JTCSE-D": "jtcse-mini",
    "adapt": "adapt",
}
# `adapt` compares its models at the end; its copies are what takes time.
CHANGES = {way: ["evaluate={}"] for way in WAYS}
CHANGES["adapt"] = ["evaluate={dev: unlabelled}", "effort=full"]
SHIPPED = "as shipped"
SENTENCES, USUAL = 3000, 10_000
NAME = "same_time"


class Deadline(TrainerCallback):
    """Ends each stage when its share of the time is over, and lets a falling rate fall with the
    time.
    """

    def __init__(self, seconds: float, parts: list[int]) -> None:
        self.over, self.parts = seconds, parts
        self.steps, self.last = 0, 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take a part of what is left."""
        share = self.parts[0] / sum(self.parts)
        self.began, self.parts = time.process_time(), self.parts[1:]
        self.ends = self.began + max(1.0, (self.over - self.began) * share)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the rate, which the trainer's own schedule leaves as good as constant in so many
        steps.
        """
        if args.lr_scheduler_type != "linear":
            return
        remaining = max(0.0, (self.ends - time.process_time()) / (self.ends - self.began))
        warm = min(1.0, (state.global_step + 1) / args.warmup_steps) if args.warmup_steps else 1.0
        for group in kwargs["optimizer"].param_groups:
            group["lr"] = group["initial_lr"] * warm * remaining

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop when the time is over."""
        self.steps, self.last = self.steps + 1, time.process_time()
        control.should_training_stop = self.last >= self.ends


def folder_of(way: str, text: str, seed: int) -> str:
    """What a cell's folder is called."""
    return f"{WAYS[way]}-{text}-{seed}"


def usual(way: str) -> tuple[StageSpec, ...]:
    """The stages of a way's recipe."""
    return load_recipe(WAYS[way], CHANGES[way]).stages


def recipe_of(way: str, text: Path, seed: int, folder: Path) -> LoadedRecipe:
    """The way's recipe on a text, without evaluations and without an end of its own."""
    changes = [f"data.train={text}", f"seed={seed}", f"output_dir={folder}", *CHANGES[way]]
    names = [stage.name for stage in usual(way) if stage.loss is not None]
    for name in names:
        changes += [
            f"stages.{name}.args.{key}"
            for key in ("eval_strategy=no", "max_steps=1000000", "bf16=auto")
        ]
    if way != "adapt":  # It says itself how each of its models reads.
        changes.append("model.pooling=mean")
    return load_recipe(WAYS[way], changes)


def in_bfloat16(encode: Callable[..., Any]) -> Callable[..., Any]:
    """Encode under autocast, of its own: an outer one would keep weights that training changes."""

    @wraps(encode)
    def encoded(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return encode(*args, **kwargs)

    return encoded


def train(way: str, text: Path, seed: int, seconds: float, folder: Path) -> None:
    """Train one cell; its folder then holds the run, the last stage's model apart, and the number
    of steps.
    """
    shutil.rmtree(folder, ignore_errors=True)
    trained = [stage for stage in usual(way) if stage.loss is not None]
    deadline = Deadline(seconds, [steps_of(stage, USUAL) or 0 for stage in trained])
    loaded = recipe_of(way, text, seed, folder / "run")
    if bf16_choice()["bf16"]:
        SentenceTransformer.encode = in_bfloat16(SentenceTransformer.encode)
    run(loaded, callbacks=[deadline])
    told = {"steps": deadline.steps, "seconds": round(deadline.last, 1)}
    (folder / "run" / loaded.stages[-1].name).rename(folder / "model")
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")


def score(model: Path, tests: list[Path]) -> dict[str, float]:
    """A model's scores by test set."""
    loaded = SentenceTransformer(str(model), device="cpu")
    sets = [load_own_set(Source(file), file.name.split(".")[0]) for file in tests]
    return {own.name: round(100 * own.score(own.statistic(loaded)), 3) for own in sets}


def lines_of(text: Path) -> set[str]:
    """The different sentences of a text."""
    return {line.strip() for line in text.read_text(encoding="utf-8").splitlines() if line.strip()}


def draw(text: Path, into: Path) -> Path:
    """The sentences that every way trains on."""
    lines = sorted(lines_of(text))
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(
        "\n".join(random.Random(0).sample(lines, min(SENTENCES, len(lines)))) + "\n",
        encoding="utf-8",
    )
    return into


def main() -> None:
    """Train and score what is missing, and keep each cell as it comes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--text", action="append", required=True, metavar="NAME=TRAIN.txt,TEST.jsonl[,...]"
    )
    parser.add_argument(
        "--models", type=Path, required=True, help="folder for the trained models, about 20 GB"
    )
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seconds", type=float, default=130)
    parser.add_argument("--at-once", type=int, default=2, help="processes, each of one thread")
    parser.add_argument("--cell", help=argparse.SUPPRESS)  # One process's: WAY/TEXT/SEED.
    options = parser.parse_args()
    texts = {
        name: [Path(file) for file in files.split(",")]
        for name, files in (t.split("=", 1) for t in options.text)
    }
    if options.cell:
        torch.set_num_threads(1)
        way, text, seed = options.cell.split("/")
        folder = options.models / folder_of(way, text, int(seed))
        train(way, options.models / f"{text}.txt", int(seed), options.seconds, folder)
        return

    old = (
        json.loads(file.read_text(encoding="utf-8"))["cells"]
        if (file := RESULTS / f"{NAME}.json").exists()
        else []
    )
    cells: dict[tuple[str, str, int], Any] = {
        (cell["way"], cell["text"], cell["seed"]): cell for cell in old
    }

    def kept(way: str, text: str, seed: int, model: Path, **told: Any) -> None:
        scores = score(model, texts[text][1:])
        mean = round(statistics.mean(scores.values()), 3)
        cells[way, text, seed] = {
            "way": way,
            "text": text,
            "seed": seed,
            "mean": mean,
            "scores": scores,
            **told,
        }
        keep(
            NAME,
            {
                "core_seconds": options.seconds,
                "sentences": SENTENCES,
                "cells": list(cells.values()),
            },
        )
        print(f"{way}, {text}, seed {seed}: {mean}", flush=True)

    def one(cell: tuple[str, str, int]) -> None:
        folder = options.models / folder_of(*cell)
        own = [sys.executable, *sys.argv, "--cell", "/".join(map(str, cell))]
        subprocess.run(own, check=True, stdout=subprocess.DEVNULL)
        told = json.loads((folder / "told.json").read_text(encoding="utf-8"))
        kept(*cell, folder / "model", **told)

    torch.set_num_threads(1)
    for name, files in texts.items():
        draw(files[0], options.models / f"{name}.txt")
        if (SHIPPED, name, 0) not in cells:
            kept(SHIPPED, name, 0, embedded.folder())
    wanted = [(way, name, seed) for seed in options.seeds for name in texts for way in options.ways]
    with ThreadPoolExecutor(options.at_once) as lanes:
        list(lanes.map(one, [cell for cell in wanted if cell not in cells]))


if __name__ == "__main__":
    main()
