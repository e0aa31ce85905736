"""What the benchmarks measure, written down: benchmarks/results/NAME.json, which nobody edits by
hand.
"""

import json
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def keep(name: str, found: dict[str, Any], results: Path = RESULTS) -> None:
    """Write the figures of one run, with what it ran on."""
    ran_on = {
        "machine": device_name(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    results.mkdir(exist_ok=True)
    (results / f"{name}.json").write_text(
        json.dumps(ran_on | found, indent=2) + "\n", encoding="utf-8"
    )


def device_name() -> str:
    """The accelerator's name, else the processor's."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def quartiles(values: Sequence[float]) -> list[float]:
    """First quartile, median and third quartile."""
    cuts = (
        statistics.quantiles(values, n=4, method="inclusive")
        if len(values) > 1
        else list(values) * 3
    )
    return [round(each, 4) for each in cuts]
