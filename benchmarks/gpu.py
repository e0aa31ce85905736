"""Training steps on an accelerator: sentences a second, share of its bf16 peak, time of an epoch,
what limits it.

Run: python benchmarks/gpu.py [--shapes base large] [--losses SimCSELoss JTCSELoss] [--batches 64
512] [--steps 20] Random-weight BERTs of the published shapes train in bf16 autocast with fused
AdamW, dropout 0.1, on made-up sentences of Wiki1M's lengths: log-normal, median 22 tokens with the
two special ones, sigma 0.5, cut to 5 and 64, which makes a mean of about 25. A step's time is a
median until the device is done, tokenising apart. Its share of the peak counts the matrix products
that it does, padding included, whose share stands beside it; the peak is the data sheet's (dense)
of the devices in PEAKS, else that of a measured product. An epoch has one million sentences and
tokenises beside steps. Where the device works less than 80 % of a step it waits for the host; else
matrix products or the rest limit it, whichever takes longer. The figures go into
benchmarks/results/gpu.json. The shape "tiny" tries all this on a CPU.
"""

import argparse
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from big_batches import WORDS, encoder
from kept import RESULTS, device_name, keep
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch.autograd import DeviceType
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

from st_jtcse import losses
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder

# Layers, hidden size, heads.
SHAPES = {"base": (12, 768, 12), "large": (24, 1024, 16), "tiny": (2, 32, 2)}
# Dense bf16, from the makers' data sheets.
PEAKS = {"H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12}
EPOCH = 1_000_000
DISTRIBUTION = {"median_tokens": 22, "sigma": 0.5, "least": 5, "most": 64}
PRODUCTS = re.compile(r"gemm|cutlass|nvjet|xmma|fmha|flash|attention|\b(add|b|badd)?b?mm\b")


def sentences(count: int) -> list[str]:
    """Made-up sentences of the distribution's lengths."""
    draw = random.Random(0)
    lengths = [22 * draw.lognormvariate(0, 0.5) for _ in range(count)]
    return [
        " ".join(draw.choices(WORDS, k=max(3, min(62, round(length) - 2)))) for length in lengths
    ]


def model_of(shape: str, loss: str, device: str) -> SentenceTransformer:
    """One tower, or for JTCSELoss two of them."""
    layers, hidden, heads = SHAPES[shape]
    sizes = {
        "vocab_size": 30522,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    sizes |= {"intermediate_size": 4 * hidden, "max_position_embeddings": 512}
    with tempfile.TemporaryDirectory() as place:
        folder = encoder(Path(place, "0"), 0, **sizes)
        if loss == "JTCSELoss":
            modules: list[Any] = [
                TwinCrossAttentionEncoder.from_towers(folder, folder),
                PoolerModulusHead(),
            ]
        else:
            modules = [Transformer(str(folder))]
        return SentenceTransformer(
            modules=[*modules, Pooling(hidden, "cls")], device=device
        ).train()


def peak_of(device: str) -> tuple[float, str]:
    """The device's dense bf16 peak in FLOP/s, and how it is known."""
    name = device_name() if device == "cuda" else ""
    if known := next((peak for part, peak in PEAKS.items() if part in name), None):
        return known, "data sheet"
    size = 8192 if device == "cuda" else 512
    one = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    return 2 * size**3 / min(
        seconds(lambda: one @ one, device) for _ in range(10)
    ), "measured product"


def seconds(work: Callable[[], Any], device: str) -> float:
    """How long something takes until the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def busy(step: Callable[[], Any], device: str) -> tuple[float, float]:
    """Seconds in which the device computes in a step, and those of them in matrix products."""
    with profile() as seen:
        seconds(step, device)
    if (
        device == "cuda"
    ):  # Its kernels are events of their own, beside the operators that launched them.
        events = [each for each in seen.key_averages() if each.device_type == DeviceType.CUDA]
        times = {
            each.key: each.self_device_time_total for each in events if not each.is_user_annotation
        }
    else:
        times = {each.key: each.self_cpu_time_total for each in seen.key_averages()}
    return sum(times.values()) / 1e6, sum(
        time for name, time in times.items() if PRODUCTS.search(name)
    ) / 1e6


def measure(shape: str, loss_name: str, batch: int, steps: int, device: str) -> dict[str, Any]:
    """The figures of one shape, loss and batch."""
    model = model_of(shape, loss_name, device)
    loss = getattr(losses, loss_name)(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    texts = sentences(batch * 8)
    parts = [texts[begin : begin + batch] for begin in range(0, len(texts), batch)]
    tokenising = statistics.median(
        seconds(lambda part=part: model.preprocess(part), "cpu") for part in parts
    )
    given = [
        {
            key: value.to(device) if isinstance(value, torch.Tensor) else value
            for key, value in each.items()
        }
        for each in map(model.preprocess, parts)
    ]
    masks = [features["attention_mask"] for features in given]

    def step(number: int = 0, learns: bool = True) -> None:
        with torch.autocast(device, torch.bfloat16):
            value = loss([dict(given[number % len(given)])])
        (sum(value.values()) if isinstance(value, dict) else value).backward()
        if learns:
            optimizer.step()
            optimizer.zero_grad()

    for number in range(min(3, steps)):
        step(number)
    taken = statistics.median(
        seconds(lambda number=number: step(number), device) for number in range(steps)
    )
    counts = []
    for number in range(len(given)):
        with FlopCounterMode(display=False) as counter:
            step(number, learns=False)
        counts.append(counter.get_total_flops())
    optimizer.zero_grad()
    works, products = busy(step, device)
    peak, known_by = peak_of(device)
    share = works / taken
    limit = (
        "the host"
        if share < 0.8
        else "matrix products"
        if products > works / 2
        else "what is no matrix product"
    )
    return {
        "shape": shape,
        "loss": loss_name,
        "batch": batch,
        "steps": steps,
        "mean_tokens": round(sum(int(mask.sum()) for mask in masks) / len(texts), 1),
        "padding": round(
            1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks), 3
        ),
        "step_seconds": taken,
        "sentences_per_second": batch / taken,
        "peak_share": statistics.mean(counts) / taken / peak,
        "peak_tflops": peak / 1e12,
        "peak_known_by": known_by,
        "epoch_seconds": EPOCH / batch * max(taken, tokenising),
        "tokenising_seconds": tokenising,
        "device_busy": share,
        "products_of_busy": products / works,
        "limited_by": "tokenising" if tokenising > taken else limit,
        "memory_gib": torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all that is asked for, one after the other, and keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=tuple(SHAPES), default=["base", "large"])
    parser.add_argument(
        "--losses",
        nargs="+",
        choices=("SimCSELoss", "JTCSELoss"),
        default=["SimCSELoss", "JTCSELoss"],
    )
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 512])
    parser.add_argument(
        "--steps", type=int, default=20, help="timed steps, after three for warm-up"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for shape in options.shapes:
        for loss in options.losses:
            for batch in options.batches:
                rows.append(measure(shape, loss, batch, options.steps, device))
                print(rows[-1], flush=True)
                if device == "cuda":
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
    keep("gpu", {"device": device, "lengths": DISTRIBUTION, "rows": rows}, options.results)


if __name__ == "__main__":
    main()
