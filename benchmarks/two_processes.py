"""What a step costs in one process and in two, each with a batch of its own, compared with the
sentences of all.

Run: python benchmarks/two_processes.py [--batch 256] [--steps 7]
The small random BERT of big_batches.py under DistributedDataParallel (gloo) on this machine,
SimCSELoss with gather_across_devices, in one pass and in mini-batches, one thread a process, the
optimiser left out. Every process counts its own processor time: what it adds is gathering,
averaging gradients and comparing with twice the sentences. One process and two take turns, and a
ratio is the median over rounds. The figures go into benchmarks/results/two_processes.json.
"""

import argparse
import os
import socket
import statistics
import tempfile
from pathlib import Path

import torch
from big_batches import MINI_BATCH, model_of, step
from kept import keep, quartiles
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from st_jtcse.losses import SimCSELoss

WAYS: dict[str, dict[str, int]] = {
    "in one pass": {},
    "mini-batches": {"mini_batch_size": MINI_BATCH["small"]},
}


def work(rank: int, world: int, port: int, batch: int, steps: int, place: str) -> None:
    """Take steps in one process, the others waiting, and in all; save the first process's times."""
    torch.set_num_threads(1)
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
    }
    model = model_of("SimCSELoss")  # Saved and read, which only the first process of a group does.
    distributed.init_process_group("gloo")
    seconds: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for way, settings in WAYS.items():
        alone = SimCSELoss(model, **settings)
        together = SimCSELoss(model, gather_across_devices=True, **settings)
        together.model = DistributedDataParallel(model, find_unused_parameters=True)
        for number in range(steps + 1):
            distributed.barrier()
            one = 0.0 if rank else step(model, alone, batch)
            distributed.barrier()
            both = step(model, together, batch)
            if number:
                seconds[way].append([one, both])
    if rank == 0:
        torch.save(seconds, place)
    distributed.destroy_process_group()


def main() -> None:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=256, help="sentences of each process")
    parser.add_argument(
        "--steps", type=int, default=7, help="timed steps a way, after one for warm-up"
    )
    options = parser.parse_args()
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port, place = free.getsockname()[1], str(Path(folder, "seconds"))
        free.close()
        torch.multiprocessing.spawn(work, (2, port, options.batch, options.steps, place), nprocs=2)
        seconds = torch.load(place)
    rows = []
    for way, taken in seconds.items():
        ratio = quartiles([both / one for one, both in taken])
        for processes, own in zip((1, 2), zip(*taken)):
            row = {"way": way, "processes": processes, "batch_of_all": options.batch * processes}
            row |= {"seconds_a_process": round(statistics.median(own), 3)}
            rows.append(row | {"ratio": ratio if processes == 2 else [1.0] * 3})
            print(rows[-1])
    keep("two_processes", {"batch": options.batch, "steps": options.steps, "rows": rows})


if __name__ == "__main__":
    main()
