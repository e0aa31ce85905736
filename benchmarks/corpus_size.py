"""Memory and time to the first step of a run on a text of ten thousand to ten million lines.

Run: python benchmarks/corpus_size.py [--lines 10000 100000 1000000 10000000] [--place DIR]
Each text of short made-up lines trains a tiny random BERT by SimCSELoss for 20 steps of 64 as
`st-train` does, twice, each time in a process of its own: the first run converts a large text, the
second finds it converted. A process reports its peak resident memory, libraries included, and the
seconds from the reading of the recipe to the end of the first step, its rehearsal included, of the
clock and of the processor. The figures go into benchmarks/results, beside those of other sizes.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from big_batches import WORDS, encoder
from kept import RESULTS, keep
from transformers import TrainerCallback

# One layer: it is the text that is measured.
TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def write_text(path: Path, lines: int) -> None:
    """Write lines of 3 to 10 words, ten thousand that come again."""
    draw = random.Random(0)
    block = "".join(
        " ".join(draw.choices(WORDS, k=draw.randint(3, 10))) + "\n" for _ in range(10_000)
    )
    with path.open("w", encoding="utf-8") as file:
        for _ in range(lines // 10_000):
            file.write(block)


class FirstStep(TrainerCallback):  # type: ignore[misc]
    """Notes when the first step has ended."""

    at = computed = 0.0

    def on_step_end(self, *given: Any, **kw: Any) -> None:
        """Note the first one."""
        self.at, self.computed = (
            self.at or time.perf_counter(),
            self.computed or time.process_time(),
        )


def train(recipe: str) -> None:
    """Run a recipe and print the seconds to its first step, of the clock and the processor, and the
    peak memory.
    """
    from st_jtcse.cli.memory import keep_memory

    keep_memory()
    from st_jtcse.recipe.load import load_recipe
    from st_jtcse.training.runner import run

    first, began, computed = FirstStep(), time.perf_counter(), time.process_time()
    run(load_recipe(recipe), callbacks=[first])
    print(
        first.at - began,
        first.computed - computed,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def measure(place: Path, lines: int) -> dict[str, Any]:
    """Return what two runs on a text of so many lines take."""
    text = place / "text.txt"
    write_text(text, lines)
    found: dict[str, Any] = {"lines": lines, "text_mib": round(text.stat().st_size / 2**20, 1)}
    for name in ("first", "again"):
        recipe: dict[str, Any] = {
            "name": "size",
            "output_dir": str(place / name),
            "cache_dir": str(place / "cache"),
        }
        recipe["data"] = {"train": str(text)}
        recipe["args"] = {"max_steps": 20, "per_device_train_batch_size": 64, "save_strategy": "no"}
        model = {"base": str(place / "model"), "pooling": "cls", "dropout": 0.1}
        recipe["stages"] = [{"name": "encoder", "model": model, "loss": {"type": "SimCSELoss"}}]
        file = place / f"{name}.yaml"
        file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
        command = [sys.executable, __file__, "--one", str(file)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        keys = ("seconds_to_first_step", "processor_seconds_to_first_step", "peak_mib")
        found[name] = {key: round(float(value), 1) for key, value in zip(keys, told[-3:])}
    return found


def main() -> None:
    """Measure every size and keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--lines",
        type=int,
        nargs="+",
        default=[10**4, 10**5, 10**6, 10**7],
        help="multiples of 10,000",
    )
    parser.add_argument(
        "--place", help="folder for the texts; default: the system's for temporary files"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        train(options.one)
        return
    file = RESULTS / "corpus_size.json"
    known = json.loads(file.read_text(encoding="utf-8"))["runs"] if file.exists() else []
    rows = {row["lines"]: row for row in known}
    for lines in options.lines:
        with tempfile.TemporaryDirectory(dir=options.place) as folder:
            encoder(Path(folder, "model"), 0, **TINY)
            rows[lines] = measure(Path(folder), lines)
        print(rows[lines], flush=True)
        # After each size, and beside those of earlier commands.
        keep(
            "corpus_size",
            {"batch": 64, "steps": 20, "runs": [rows[lines] for lines in sorted(rows)]},
        )


if __name__ == "__main__":
    main()
