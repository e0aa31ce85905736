"""Encoding with a twin, an ensemble and a shallow student against one tower, in one run on one machine.

Run: python benchmarks/encode.py [--rounds N]
All models have the embedded backbone's shape and encode the same sentences through SentenceTransformer.encode; they
take turns, and medians are compared.
"""

import argparse
import statistics
import time

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from st_jtcse import bundled, embedded
from st_jtcse.diagnostics import gmac
from st_jtcse.modules import TwinCrossAttentionEncoder, ensemble_of

SENTENCES = 1024


def single(layers: int | None = None, pooling: str = "cls") -> SentenceTransformer:
    """The backbone, or its every second layer."""
    encoder = Transformer(str(embedded.folder()))
    if layers is not None:
        stack = encoder.model.encoder
        stack.layer = nn.ModuleList(list(stack.layer)[1::2][:layers])
    return SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension(), pooling)])


def twin(pooling: str = "cls") -> SentenceTransformer:
    """Two copies of the backbone."""
    encoder = TwinCrossAttentionEncoder.from_towers(embedded.folder(), embedded.folder(), pooling=pooling)
    return SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension(), "cls")])


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds a model, after one for warm-up")
    options = parser.parse_args()
    text = (bundled.folder("recipes") / "quickstart" / "sentences.txt").read_text(encoding="utf-8")
    sentences = [line for line in text.splitlines() if line.strip()][:SENTENCES]
    models = {
        "one tower, 6 layers": single(),
        "one tower, 3 layers (student)": single(layers=3),
        "twin": twin(),
        "one tower, mean": single(pooling="mean"),
        "twin, mean": twin("mean"),
        "ensemble of six": ensemble_of([single() for _ in range(6)]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for step in range(options.rounds + 1):
        for name, model in models.items():
            began = time.perf_counter()
            model.encode(sentences, batch_size=64)
            if step:
                seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    base = medians["one tower, 6 layers"]
    print(f"{'model':32} {'sentences/s':>12} {'speed':>6} {'GMAC':>6}")
    for name, model in models.items():
        print(f"{name:32} {len(sentences) / medians[name]:12.0f} {base / medians[name]:6.2f} {gmac(model):6.2f}")


if __name__ == "__main__":
    main()
