"""Memory and time of big batches in mini-batches (GradCache), beside a batch of 64 and beside one
pass.

Run: python benchmarks/big_batches.py [--loss JTCSELoss] [--backbone embedded] [--batch 4096]
[--steps 3] A small random BERT (4 layers of 128) trains on made-up sentences of 3 to 24 words, two
views of each; the embedded backbone (6 layers of 384) on sentences of which one in 32 has 64 tokens
and the others 4 to 10, so that the largest mini-batch is 64 rows of 64 tokens at every batch.
Beside SimCSELoss, Sentence-Transformers' losses of as many rows at once get the column twice. Every
size runs in a process of its own, which reports its peak resident memory and by how much one step
raised it, gradients of the weights included. Times are processor time of steps at 512 in turns;
their ratio is the median of the steps' own. The figures go into benchmarks/results.
"""

import argparse
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
from kept import keep, quartiles
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer import losses as theirs
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModel, BertConfig, PreTrainedTokenizerFast

from st_jtcse import embedded, losses
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder

WORDS = [f"w{index}" for index in range(1000)]
# Rows of both views, of which a batch of 64 has 128.
MINI_BATCH = {"small": 128, "embedded": 64}
TIMED = 512


def encoder(folder: Path, seed: int, **sizes: int) -> Path:
    """Save a random BERT, small where no sizes are given."""
    torch.manual_seed(seed)
    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    small = {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 512,
    }
    small |= {"vocab_size": len(vocabulary), "max_position_embeddings": 40}
    config = BertConfig(**small | sizes)
    AutoModel.from_config(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    return folder


def model_of(loss: str, backbone: str = "small") -> SentenceTransformer:
    """One tower, or for JTCSELoss two of them."""
    with tempfile.TemporaryDirectory() as place:
        if backbone == "embedded":
            towers = [embedded.folder()] * 2
        else:
            towers = [encoder(Path(place, str(seed)), seed) for seed in (1, 2)]
        if loss == "JTCSELoss":
            first, behind = TwinCrossAttentionEncoder.from_towers(*towers), [PoolerModulusHead()]
        else:
            first, behind = Transformer(str(towers[0])), []
        modules = [first, *behind, Pooling(first.get_embedding_dimension(), "cls")]
        return SentenceTransformer(modules=modules, device="cpu").train()


def sentences(model: SentenceTransformer, batch: int) -> list[str]:
    """Made-up sentences, the same for the same model and batch."""
    draw = random.Random(0)
    if "w1" in model.tokenizer.get_vocab():
        return [" ".join(draw.choices(WORDS, k=draw.randint(3, 24))) for _ in range(batch)]
    words = sorted(
        word for word in model.tokenizer.get_vocab() if word.isascii() and word.isalpha()
    )
    counts = [62 if index % 32 == 31 else draw.randint(2, 8) for index in range(batch)]
    return [" ".join(draw.choices(words, k=count)) for count in counts]


def step(model: SentenceTransformer, loss: torch.nn.Module, batch: int, columns: int = 1) -> float:
    """Take one step, without the optimiser, and return its processor time."""
    texts = sentences(model, batch)
    began = time.process_time()
    value = loss([model.preprocess(texts) for _ in range(columns)], None)
    (sum(value.values()) if isinstance(value, dict) else value).backward()
    model.zero_grad()
    return time.process_time() - began


def peak() -> float:
    """Return the process's peak resident memory in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, backbone: str, batch: int, cached: bool) -> None:
    """Print the peak of a process that takes one step, and what it was before."""
    model = model_of(name, backbone)
    columns = 1 if hasattr(losses, name) else 2
    settings = {"mini_batch_size": MINI_BATCH[backbone] // columns} if cached else {}
    loss = getattr(losses if columns == 1 else theirs, name)(model, **settings)
    if columns == 1:
        loss.length_chunks = 1
    before = peak()
    step(model, loss, batch, columns)
    print(peak(), peak() - before)


def times(name: str, backbone: str, steps: int) -> dict[str, Any]:
    """Take steps at 512 in one pass and in mini-batches in turns."""
    model = model_of(name, backbone)
    ways: dict[str, dict[str, int]] = {
        "in one pass": {},
        "cached": {"mini_batch_size": MINI_BATCH[backbone]},
    }
    built = {way: getattr(losses, name)(model, **settings) for way, settings in ways.items()}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(steps + 1):
        for way, loss in built.items():
            taken = step(model, loss, TIMED)
            if number:
                seconds[way].append(taken)
    ratios = [cached / plain for plain, cached in zip(*seconds.values())]
    medians = {way: round(statistics.median(each), 2) for way, each in seconds.items()}
    return {"batch": TIMED, "steps": steps, "seconds": medians, "ratio": quartiles(ratios)}


def main() -> None:
    """Measure every size and keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loss", choices=("SimCSELoss", "JTCSELoss"), default="SimCSELoss")
    parser.add_argument("--backbone", choices=tuple(MINI_BATCH), default="small")
    parser.add_argument("--batch", type=int, default=4096, help="the big batch")
    parser.add_argument(
        "--steps", type=int, default=3, help="timed steps a way, after one for warm-up; 0: none"
    )
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, batch, way = options.one
        measure(name, options.backbone, int(batch), way == "cached")
        return
    found: dict[str, Any] = {"loss": options.loss, "backbone": options.backbone}
    found |= {"mini_batch": MINI_BATCH[options.backbone], "memory": []}
    sizes = [(options.loss, 64, "in one pass")]
    sizes += [(options.loss, batch, "cached") for batch in (64, 512, options.batch)]
    if options.loss == "SimCSELoss":
        sizes.append(("MultipleNegativesRankingLoss", 64, "in one pass"))
        sizes += [
            ("CachedMultipleNegativesRankingLoss", batch, "cached") for batch in (64, options.batch)
        ]
    for name, batch, way in sizes:
        command = [
            sys.executable,
            __file__,
            "--backbone",
            options.backbone,
            "--one",
            name,
            str(batch),
            way,
        ]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        size = {
            "loss": name,
            "batch": batch,
            "way": way,
            "peak_mib": float(told[-2]),
            "rise_mib": float(told[-1]),
        }
        found["memory"].append(size)
        print(size, flush=True)
    if options.steps:
        found["time"] = times(options.loss, options.backbone, options.steps)
        print(found["time"])
    keep(
        f"big_batches_{options.loss}"
        + ("" if options.backbone == "small" else f"_{options.backbone}"),
        found,
    )


if __name__ == "__main__":
    main()
