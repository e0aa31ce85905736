"""Peak memory of CoSENT over B scores, beside the double sum written out.

Run: python benchmarks/ranking_memory.py
Each size runs forward and backward in its own process, which reports by how much its peak resident
memory rose over that of the first, smallest batch.
"""

import argparse
import resource
import subprocess
import sys

import torch

from st_jtcse.losses.ranking import cosent

SIZES = (1024, 2048, 4096, 65536, 1048576)
FORMS = ("sorted", "double sum")
# (B, B) matrices of float32 and booleans beyond this would not fit an ordinary machine.
LARGEST_DOUBLE_SUM = 4096


def double_sum(scores: torch.Tensor, labels: torch.Tensor, scale: float) -> torch.Tensor:
    """The equation as it stands."""
    differences = scale * (scores[:, None] - scores[None, :])
    ordered = labels[None, :] > labels[:, None]
    return torch.logsumexp(torch.cat([differences[ordered], differences.new_zeros(1)]), 0)


def peak() -> float:
    """Return the process's peak resident memory in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(form: str, size: int) -> None:
    """Print the rise of the peak for one batch."""
    function = cosent if form == "sorted" else double_sum
    generator = torch.Generator().manual_seed(0)

    def step(rows: int) -> float:
        scores = torch.randn(rows, generator=generator, requires_grad=True)
        loss = function(scores, torch.rand(rows, generator=generator), 1.0)
        loss.backward()
        return float(loss.detach())

    step(64)
    before = peak()
    loss = step(size)
    print(peak() - before, loss)


def main() -> None:
    """Measure every form and size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(options.one[0], int(options.one[1]))
        return
    print("B        " + "".join(f"{form:>14}" for form in FORMS) + "  MiB")
    for size in SIZES:
        row = f"{size:<9}"
        for form in FORMS:
            if form == "double sum" and size > LARGEST_DOUBLE_SUM:
                row += f"{'-':>14}"
                continue
            command = [sys.executable, __file__, "--one", form, str(size)]
            ended = subprocess.run(command, check=True, capture_output=True, text=True)
            row += f"{float(ended.stdout.split()[0]):>14.1f}"
        print(row)


if __name__ == "__main__":
    main()
