"""Encoding with a twin, an ensemble and a shallow student against one tower, in one run on one
machine.

Run: python benchmarks/encode.py [--rounds N] [--pooling mean] [--only twin]
All models have the embedded backbone's shape and encode the same sentences through
SentenceTransformer.encode. They take turns, and processor time is counted: a speed is the median of
the rounds' own ratios to one tower.
"""

import argparse
import statistics
import time

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from st_jtcse import bundled, embedded
from st_jtcse.modules import TwinCrossAttentionEncoder, ensemble_of
from st_jtcse.papers.diagnostics import gmac

SENTENCES = 1024
BASE = "one tower, 6 layers"


def single(pooling: str, layers: int | None = None) -> SentenceTransformer:
    """The backbone, or its every second layer."""
    encoder = Transformer(str(embedded.folder()))
    if layers is not None:
        stack = encoder.model.encoder
        stack.layer = nn.ModuleList(list(stack.layer)[1::2][:layers])
    return SentenceTransformer(
        modules=[encoder, Pooling(encoder.get_embedding_dimension(), pooling)]
    )


def twin(pooling: str) -> SentenceTransformer:
    """Two copies of the backbone."""
    encoder = TwinCrossAttentionEncoder.from_towers(
        embedded.folder(), embedded.folder(), pooling=pooling
    )
    return SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension(), "cls")])


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="timed rounds a model, after one for warm-up"
    )
    parser.add_argument(
        "--pooling", choices=("cls", "mean"), default="cls", help="how all models pool"
    )
    parser.add_argument(
        "--only", default="", help="beside one tower only the models whose names hold this"
    )
    options = parser.parse_args()
    text = (bundled.folder("recipes") / "quickstart" / "sentences.txt").read_text(encoding="utf-8")
    sentences = [line for line in text.splitlines() if line.strip()][:SENTENCES]
    builders = {
        BASE: lambda: single(options.pooling),
        "one tower, 3 layers (student)": lambda: single(options.pooling, layers=3),
        "twin": lambda: twin(options.pooling),
        "ensemble of six": lambda: ensemble_of([single(options.pooling) for _ in range(6)]),
    }
    models = {
        name: build() for name, build in builders.items() if name == BASE or options.only in name
    }
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for step in range(options.rounds + 1):
        for name, model in models.items():
            began = time.process_time()
            model.encode(sentences, batch_size=64)
            if step:
                seconds[name].append(time.process_time() - began)
    print(f"{'model':32} {'sentences/s':>12} {'speed':>6} {'GMAC':>6}")
    for name, model in models.items():
        rate = len(sentences) / statistics.median(seconds[name])
        speed = statistics.median(one / own for one, own in zip(seconds[BASE], seconds[name]))
        print(f"{name:32} {rate:12.0f} {speed:6.2f} {gmac(model):6.2f}")


if __name__ == "__main__":
    main()
