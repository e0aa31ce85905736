"""Time of a step a sentence as the batch grows, in mini-batches and in one pass, beside
Sentence-Transformers' losses.

Run: python benchmarks/growth.py [--rounds 3] [--sizes 64 256 1024 4096]
The small random BERT of big_batches.py, two views of each sentence, mini-batches of the 128 rows of
64 sentences, tokenising included, the optimiser left out, which costs the same at every batch.
MultipleNegativesRankingLoss and CachedMultipleNegativesRankingLoss get the column twice. In one
pass the batch ends at 512. Every size of every loss takes its turn in each round, the small ones
several times; processor time; growth is the median over rounds of the time a sentence at a batch to
that at the first batch of the same loss. The figures go into benchmarks/results/growth.json.
"""

import argparse
import statistics

from big_batches import MINI_BATCH, model_of, step
from kept import keep, quartiles
from sentence_transformers.base.losses.gradcache import uses_gradient_cache
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)

from st_jtcse.losses import SimCSELoss

# The largest batch in one pass, and the least sentences that are timed at once.
ONE_PASS, AT_LEAST = 512, 512


def main() -> None:
    """Measure every size of every loss in turns and keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="timed rounds, after one step each for warm-up"
    )
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[64, 256, 1024, 4096],
        help="batches, smallest first",
    )
    options = parser.parse_args()
    model, rows = model_of("SimCSELoss"), MINI_BATCH["small"]
    losses = {
        "SimCSELoss, mini-batches": (SimCSELoss(model, mini_batch_size=rows), 1),
        "CachedMultipleNegativesRankingLoss": (
            CachedMultipleNegativesRankingLoss(model, mini_batch_size=rows // 2),
            2,
        ),
        "SimCSELoss": (SimCSELoss(model), 1),
        "MultipleNegativesRankingLoss": (MultipleNegativesRankingLoss(model), 2),
    }
    seconds: dict[str, dict[int, list[float]]] = {name: {} for name in losses}
    for number in range(options.rounds + 1):
        for size in options.sizes if number else options.sizes[:1]:
            for name, (loss, columns) in losses.items():
                if size > ONE_PASS and not uses_gradient_cache(loss):
                    continue
                taken = [step(model, loss, size, columns) for _ in range(max(1, AT_LEAST // size))]
                if number:
                    seconds[name].setdefault(size, []).append(statistics.fmean(taken) / size)
                    print(number, name, size, f"{1e3 * seconds[name][size][-1]:.2f} ms", flush=True)
    found = [
        {
            "loss": name,
            "batch": size,
            "ms_a_sentence": round(1e3 * statistics.median(taken), 3),
            "growth": quartiles([one / first for one, first in zip(taken, own[options.sizes[0]])]),
        }
        for name, own in seconds.items()
        for size, taken in own.items()
    ]
    keep("growth", {"mini_batch": rows, "rounds": options.rounds, "rows": found})


if __name__ == "__main__":
    main()
