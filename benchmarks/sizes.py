"""What `st-train --dry-run --simulate` says of a run of 500 to 4,000 texts by a rehearsal on 500,
beside real runs.

Run: python benchmarks/sizes.py [--texts 500 1000 2000 4000]
The embedded model learns from a teacher of its own kind, whose vectors are drawn to their
neighbours, for an epoch of batches of 64 short made-up sentences. Each simulation and each run is a
process of its own: processor seconds from before the libraries are imported to the end, bytes of
the cache and the output folder, and peak resident memory. The figures go into benchmarks/results.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from kept import keep

WORDS = (
    "the a one two man woman dog cat bird horse runs walks sleeps eats plays reads on in under "
    "near street house river park table ball book apple red big small old slowly quickly not and "
    "with"
).split()
BATCH = 64


def write_text(path: Path, texts: int) -> None:
    """Write different sentences of 4 to 14 words."""
    draw, found = random.Random(0), dict[str, None]()
    while len(found) < texts:
        found[" ".join(draw.choices(WORDS, k=draw.randint(4, 14)))] = None
    path.write_text("\n".join(found) + "\n", encoding="utf-8")


def recipe_of(place: Path, texts: int) -> Path:
    """Write a text and the recipe that reads it."""
    write_text(place / f"{texts}.txt", texts)
    stage = {
        "name": "taught",
        "model": {"base": "embedded", "pooling": "mean"},
        "teachers": [{"model": "embedded", "pooling": "cls"}],
        "neighbours": {"count": 10, "weight": 0.3},
        "loss": {"type": "EmbedDistillLoss", "distance_metric": "cosine"},
    }
    recipe = {
        "name": "size",
        "output_dir": str(place / f"run-{texts}"),
        "cache_dir": str(place / f"cache-{texts}"),
        "data": {"train": f"{texts}.txt"},
        "args": {
            "num_train_epochs": 1,
            "per_device_train_batch_size": BATCH,
            "save_strategy": "no",
            "use_cpu": True,
        },
        "stages": [stage],
    }
    file = place / f"{texts}.yaml"
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return file


def simulated(file: str, texts: int) -> dict[str, float]:
    """Return what a simulation says, behind the plan that the command makes."""
    from st_jtcse.recipe.load import load_recipe
    from st_jtcse.recipe.scale import Scale
    from st_jtcse.training import plan, simulation

    loaded = load_recipe(file)
    names = loaded.choose([])
    plan.plan([loaded], names)
    found = simulation.simulate(loaded, names, Scale(texts))
    told = {"seconds": found.seconds, "bytes": found.disk, "memory": found.memory}
    return told | {part.demand.what.partition(",")[0]: part.seconds or 0.0 for part in found.parts}


def run(file: str) -> dict[str, float]:
    """Run a recipe; return what it took."""
    from st_jtcse.recipe.load import load_recipe
    from st_jtcse.training import runner

    loaded = load_recipe(file)
    runner.run(loaded)
    used = resource.getrusage(resource.RUSAGE_SELF)
    folders = (Path(loaded.recipe.output_dir), Path(str(loaded.cache_dir)))
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {
        "seconds": used.ru_utime + used.ru_stime,
        "bytes": sum(path.stat().st_size for path in files),
        "memory": 1024 * used.ru_maxrss,
    }


def alone(*arguments: str) -> dict[str, float]:
    """Return what this script says in a process of its own, which keeps its memory as the command
    does.
    """
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TQDM_DISABLE": "1"},
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {name: round(value, 3) for name, value in found.items()}


def measure(sizes: list[int]) -> list[dict[str, Any]]:
    """Return each size with what was foretold on the smallest, and what it took."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = {texts: str(recipe_of(Path(folder), texts)) for texts in sizes}
        for texts, file in files.items():
            foretold = alone("--simulate", files[min(sizes)], str(texts))
            rows.append({"texts": texts, "foretold": foretold, "taken": alone("--one", file)})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure every size and keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, nargs="+", default=[500, 1000, 2000, 4000])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--simulate", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.one and not options.simulate:
        keep("sizes", {"batch": BATCH, "rows": measure(options.texts)})
        return
    from st_jtcse.cli.memory import keep_memory

    keep_memory()
    if options.one:
        print(json.dumps(run(options.one)))
        return
    file, texts = options.simulate
    print(json.dumps(simulated(file, int(texts))))


if __name__ == "__main__":
    main()
