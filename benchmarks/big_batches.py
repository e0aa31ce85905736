"""Memory and time of big batches in mini-batches (GradCache), beside a batch of 64 and beside one pass.

Run: python benchmarks/big_batches.py [--loss JTCSELoss] [--batch 4096] [--steps 3]
A small random BERT (4 layers of 128) trains on made-up sentences of 3 to 24 words, two views of each. Every size runs
in a process of its own, which reports its peak resident memory and by how much one step raised it. Times are processor
time of steps at 512 in turns; their ratio is the median of the steps' own. The figures go into benchmarks/results.
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModel, BertConfig, PreTrainedTokenizerFast

from st_jtcse import losses
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder

RESULTS = Path(__file__).parent / "results"
WORDS = [f"w{index}" for index in range(1000)]
# Rows of both views: a batch of 64 in one pass.
MINI_BATCH = 128
TIMED = 512


def encoder(folder: Path, seed: int) -> Path:
    """Save a random BERT."""
    torch.manual_seed(seed)
    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=40,
    )
    AutoModel.from_config(config).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    return folder


def model_of(loss: str) -> SentenceTransformer:
    """One tower, or for JTCSELoss two of them."""
    with tempfile.TemporaryDirectory() as place:
        towers = [encoder(Path(place, str(seed)), seed) for seed in (1, 2)]
        if loss == "JTCSELoss":
            twin = TwinCrossAttentionEncoder.from_towers(*towers)
            return SentenceTransformer(modules=[twin, PoolerModulusHead(), Pooling(128, "cls")], device="cpu").train()
        return SentenceTransformer(modules=[Transformer(str(towers[0])), Pooling(128, "cls")], device="cpu").train()


def step(model: SentenceTransformer, loss: torch.nn.Module, batch: int) -> float:
    """Take one step, without the optimiser, and return its processor time."""
    draw = random.Random(0)
    features = model.preprocess([" ".join(draw.choices(WORDS, k=draw.randint(3, 24))) for _ in range(batch)])
    began = time.process_time()
    value = loss([features])
    (sum(value.values()) if isinstance(value, dict) else value).backward()
    model.zero_grad()
    return time.process_time() - began


def peak() -> float:
    """Return the process's peak resident memory in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, batch: int, cached: bool) -> None:
    """Print the peak of a process that takes one step, and what it was before."""
    model = model_of(name)
    settings = {"mini_batch_size": MINI_BATCH} if cached else {"length_chunks": 1}
    before = peak()
    step(model, getattr(losses, name)(model, **settings), batch)
    print(peak(), peak() - before)


def main() -> None:
    """Measure every size, print the table and keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", choices=("SimCSELoss", "JTCSELoss"), default="SimCSELoss")
    parser.add_argument("--batch", type=int, default=4096, help="the big batch")
    parser.add_argument("--steps", type=int, default=3, help="timed steps a way, after one for warm-up")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(options.loss, int(options.one[0]), options.one[1] == "cached")
        return
    found: dict[str, Any] = {"loss": options.loss, "torch": torch.__version__, "threads": torch.get_num_threads()}
    rows: list[dict[str, Any]] = []
    for batch, way in ((64, "in one pass"), (512, "cached"), (options.batch, "cached")):
        command = [sys.executable, __file__, "--loss", options.loss, "--one", str(batch), way]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        rows.append({"batch": batch, "way": way, "peak_mib": float(told[-2]), "rise_mib": float(told[-1])})
        print(rows[-1], flush=True)
    found["memory"] = rows

    model = model_of(options.loss)
    ways: dict[str, dict[str, int]] = {"in one pass": {}, "cached": {"mini_batch_size": MINI_BATCH}}
    built = {way: getattr(losses, options.loss)(model, **settings) for way, settings in ways.items()}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(options.steps + 1):
        for way, loss in built.items():
            taken = step(model, loss, TIMED)
            if number:
                seconds[way].append(taken)
    ratio = statistics.median(cached / plain for plain, cached in zip(*seconds.values()))
    medians = {way: round(statistics.median(each), 2) for way, each in seconds.items()}
    found["time"] = {"batch": TIMED, "seconds": medians, "ratio": round(ratio, 2)}
    print(found["time"])
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(found, indent=2) + "\n"
    (RESULTS / f"big_batches_{options.loss}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
