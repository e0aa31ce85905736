"""Processor time of adapt's gears beside one encoding of the text, and of a step of distillation
in chunks of similar length beside one that pads the whole batch.

Run: python benchmarks/gears.py --text FILE [--gears seconds minutes] [--steps N]
Each gear is a process of its own, on one thread; so is the encoding, which loads the same
libraries. The figures go into benchmarks/results/gears.json.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from kept import keep, quartiles
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss

from st_jtcse import embedded
from st_jtcse.losses.views import in_length_chunks

BATCH = 64
ENCODE = """
import sys
from sentence_transformers import SentenceTransformer
from st_jtcse import embedded
texts = list(dict.fromkeys(open(sys.argv[1], encoding="utf-8").read().splitlines()))
model = SentenceTransformer(str(embedded.folder()), device="cpu")
model.encode(texts, batch_size=64, show_progress_bar=False)
"""


def seconds_of(*command: str) -> float:
    """Processor time of a command, user and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *command], check=True, env=environment, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def gear(name: str, text: Path) -> float:
    """Processor time of a whole run of a gear, in float32, with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        changes = [f"effort={name}", f"data.train={text}", "args.bf16=false", "args.use_cpu=true"]
        changes.append(f"cache_dir={folder}/cache")
        options = [part for change in changes for part in ("--set", change)]
        run = ("-m", "st_jtcse.cli.train", "adapt", *options, "--output-dir", f"{folder}/out")
        return seconds_of(*run)


def steps(text: Path, count: int) -> list[float]:
    """Ratios of a step in chunks to one that pads the batch, on the same sentences in turns."""
    model = SentenceTransformer(str(embedded.folder()), device="cpu").train()
    loss = EmbedDistillLoss(model, distance_metric="cosine")
    texts, draw = text.read_text(encoding="utf-8").splitlines(), random.Random(0)
    ratios = []
    for number in range(count + 1):
        features = model.preprocess(draw.sample(texts, BATCH))
        labels = torch.randn(BATCH, int(model.get_embedding_dimension() or 0))
        whole = step(loss, features, labels)
        with in_length_chunks(model):
            chunks = step(loss, features, labels)
        if number:  # The first is a warm-up.
            ratios.append(chunks / whole)
    return ratios


def step(loss: EmbedDistillLoss, features: dict[str, torch.Tensor], labels: torch.Tensor) -> float:
    """Processor time of a forward and a backward pass."""
    began = time.process_time()
    loss([dict(features)], labels).backward()
    return time.process_time() - began


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True, help="a sentence a line")
    parser.add_argument("--gears", nargs="*", default=["seconds", "minutes"])
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each way")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ratio = quartiles(steps(options.text, options.steps))
    print(f"a step in chunks / one that pads the batch: {ratio[1]:.2f}")
    once = seconds_of("-c", ENCODE, str(options.text))
    print(f"encode the text once: {once:.0f} s")
    found = {}
    for name in options.gears:
        found[name] = round(gear(name, options.text), 1)
        print(f"{name}: {found[name]:.0f} s, {found[name] / once:.2f} encodings", flush=True)
    keep("gears", {"step_ratio": ratio, "encode_once": round(once, 1), "gears": found})


if __name__ == "__main__":
    main()
