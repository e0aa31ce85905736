"""Joint training step against Sentence-Transformers' own SimCSE step, in one run on one machine.

Run: python benchmarks/train_step.py [--steps N]
The baseline is MultipleNegativesRankingLoss on the sentence column given twice, as ST trains SimCSE. Both
sides use the same backbone, sentences, optimiser and batch of 64; the variants take turns, and medians are
compared.
"""

import argparse
import statistics
import time

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling

from st_jtcse import bundled, embedded
from st_jtcse.losses import JTCSELoss, LSRNSLoss, RankCSELoss, SimCSELoss
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder

BATCH = 64


def single(pooling: str = "cls") -> SentenceTransformer:
    """The backbone alone."""
    encoder = Transformer(str(embedded.folder()))
    return SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension(), pooling)])


def twin(pooling: str = "cls") -> SentenceTransformer:
    """Two copies of the backbone with cross-attention at every second layer."""
    encoder = TwinCrossAttentionEncoder.from_towers(embedded.folder(), embedded.folder(), pooling=pooling)
    pooling = Pooling(encoder.get_embedding_dimension(), "cls")
    return SentenceTransformer(modules=[encoder, PoolerModulusHead(), pooling])


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="timed steps a variant, after two for warm-up")
    parser.add_argument("--text", default=str(bundled.folder("recipes") / "quickstart" / "sentences.txt"))
    options = parser.parse_args()
    with open(options.text, encoding="utf-8") as file:
        sentences = [line.strip() for line in file if line.strip()]

    one, two, one_mean, two_mean = single(), twin(), single("mean"), twin("mean")
    variants = {
        "MultipleNegativesRankingLoss, one tower": (one, MultipleNegativesRankingLoss(one), 2),
        "SimCSELoss, one tower": (one, SimCSELoss(one), 1),
        "RankCSELoss, CoSENT form, one tower": (one, RankCSELoss(one, ranking="cosent"), 1),
        "LSRNSLoss, one tower": (one, LSRNSLoss(one), 1),
        "LSRNSLoss, CoSENT form, one tower": (one, LSRNSLoss(one, rank_loss="cosent"), 1),
        "JTCSELoss, one chunk": (two, JTCSELoss(two, length_chunks=1), 1),
        "JTCSELoss": (two, JTCSELoss(two), 1),
        "JTCSELoss, TNCSE setting": (two, JTCSELoss(two, cross_weight=0, direction="1_to_2"), 1),
        "SimCSELoss, one tower, mean": (one_mean, SimCSELoss(one_mean), 1),
        "JTCSELoss, mean": (two_mean, JTCSELoss(two_mean), 1),
    }
    # Teacher vectors are computed beforehand; what they say makes no difference to the time.
    labels = torch.nn.functional.normalize(torch.randn(BATCH, 384, generator=torch.Generator().manual_seed(0)))
    optimizers = {id(model): torch.optim.AdamW(model.parameters(), lr=1e-6) for model in (one, two, one_mean, two_mean)}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for step in range(options.steps + 2):
        batch = sentences[step * BATCH % (len(sentences) - BATCH) :][:BATCH]
        for name, (model, loss, columns) in variants.items():
            model.train()
            began = time.perf_counter()
            value = loss([model.preprocess(batch) for _ in range(columns)], labels)
            total = sum(value.values()) if isinstance(value, dict) else value
            total.backward()
            optimizers[id(model)].step()
            optimizers[id(model)].zero_grad()
            if step >= 2:
                seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    baseline = next(iter(medians.values()))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, batch {BATCH}, {options.steps} steps")
    for name, median in medians.items():
        print(f"{name:42s} {median:7.3f} s  {median / baseline:5.2f}x")


if __name__ == "__main__":
    main()
