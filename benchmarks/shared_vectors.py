"""What the vectors of a recipe's teachers cost one process, and each of two that share them.

Run: python benchmarks/shared_vectors.py [--texts 20000]
The embedded model is the teacher of itself, of short made-up sentences: `st-train --prepare 1/1`
computes their vectors, alone and under `torchrun --nproc_per_node=2` (gloo, CPU), each time into a
new cache folder, and is then repeated with that folder full. Every process counts its own processor
seconds, from its start to its end; the repeated command does all but the encoding, so the
difference is the encoding's. The figures go into benchmarks/results/shared_vectors.json.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from kept import keep
from sizes import write_text

from st_jtcse.hashing import sha256

PROCESSES = (1, 2)


def recipe_of(place: Path, processes: int) -> Path:
    """Write the recipe that a number of processes prepares, with a cache of its own."""
    recipe = {
        "name": "shared",
        "output_dir": str(place / f"run-{processes}"),
        "cache_dir": str(place / f"cache-{processes}"),
        "data": {"train": "text.txt"},
        "args": {"max_steps": 1, "per_device_train_batch_size": 64, "use_cpu": True},
        "stages": [
            {
                "name": "taught",
                "model": {"base": "embedded", "pooling": "mean"},
                "teachers": [{"model": "embedded", "pooling": "cls"}],
                "loss": {"type": "EmbedDistillLoss", "distance_metric": "cosine"},
            }
        ],
    }
    file = place / f"{processes}.yaml"
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return file


def prepare(recipe: str) -> int:
    """Be a process of the command, and leave its processor seconds beside the recipe."""
    from st_jtcse.cli.train import main as train

    status = train([recipe, "--prepare", "1/1"])
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in used)
    place = Path(recipe).with_suffix(f".{os.environ.get('RANK', 0)}.json")
    place.write_text(json.dumps(seconds), encoding="utf-8")
    return status


def seconds_of(recipe: Path, processes: int) -> list[float]:
    """Return the processor seconds of each process of the command."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    command = [sys.executable, *(launcher if processes > 1 else []), __file__, "--one", str(recipe)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    files = [recipe.with_suffix(f".{rank}.json") for rank in range(processes)]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def kept_by(place: Path, processes: int) -> dict[str, str]:
    """Return the files that a number of processes keeps in its cache, by their hashes."""
    folder = place / f"cache-{processes}"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256(path) for path in files}


def measure(texts: int) -> tuple[list[dict[str, Any]], bool]:
    """Return what each process took, and whether one and two keep the same bytes."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_text(place / "text.txt", texts)
        for processes in PROCESSES:
            recipe = recipe_of(place, processes)
            whole = seconds_of(recipe, processes)
            without = seconds_of(recipe, processes)
            for rank in range(processes):
                row = {"processes": processes, "rank": rank, "seconds": round(whole[rank], 2)}
                row |= {"encoding": round(whole[rank] - without[rank], 2)}
                rows.append(row)
                print(rows[-1], flush=True)
        one, two = (kept_by(place, processes) for processes in PROCESSES)
    return rows, bool(one) and one == two


def main() -> None:
    """Measure, and keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        sys.exit(prepare(options.one))
    rows, alike = measure(options.texts)
    print("the same bytes" if alike else "other bytes", flush=True)
    keep("shared_vectors", {"texts": options.texts, "rows": rows, "same_bytes": alike})


if __name__ == "__main__":
    main()
