"""Joint training step against Sentence-Transformers' own SimCSE step, in one run on one machine.

Run: python benchmarks/train_step.py [--steps N] [--pooling mean] [--only JTCSE] [--name
train_step_jtcse] The baselines are MultipleNegativesRankingLoss on the sentence column given twice,
as ST trains SimCSE, and SimCSELoss. All variants have the same backbone, sentences, optimiser and
batch of 64. They take turns, and processor time counts: a ratio is the median of the steps' own.
The figures go into benchmarks/results/NAME.json.
"""

import argparse
import statistics
import time

import torch
from kept import keep, quartiles
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling

from st_jtcse import bundled, embedded
from st_jtcse.losses import JTCSELoss, LSRNSLoss, RankCSELoss, SimCSELoss
from st_jtcse.modules import PoolerModulusHead, TwinCrossAttentionEncoder

BATCH = 64
BASES = ("MultipleNegativesRankingLoss, one tower", "SimCSELoss, one tower")
RATIOS = dict(zip(("to_mnrl", "to_simcse"), BASES))


def single(pooling: str) -> SentenceTransformer:
    """The backbone alone."""
    encoder = Transformer(str(embedded.folder()))
    return SentenceTransformer(
        modules=[encoder, Pooling(encoder.get_embedding_dimension(), pooling)]
    )


def twin(pooling: str, every: int | None = 2) -> SentenceTransformer:
    """Two copies of the backbone with cross-attention at every second layer, or none."""
    encoder = TwinCrossAttentionEncoder.from_towers(
        embedded.folder(), embedded.folder(), every, pooling=pooling
    )
    behind = [PoolerModulusHead(), Pooling(encoder.get_embedding_dimension(), "cls")]
    return SentenceTransformer(modules=[encoder, *behind])


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=int, default=10, help="timed steps a variant, after one for warm-up"
    )
    parser.add_argument(
        "--pooling", choices=("cls", "mean"), default="cls", help="how all models pool"
    )
    parser.add_argument(
        "--only", default="", help="beside the baselines only the variants whose names hold this"
    )
    parser.add_argument("--name", default="train_step", help="what the results are kept as")
    parser.add_argument(
        "--text", default=str(bundled.folder("recipes") / "quickstart" / "sentences.txt")
    )
    options = parser.parse_args()
    with open(options.text, encoding="utf-8") as file:
        sentences = [line.strip() for line in file if line.strip()]

    one, two, apart = single(options.pooling), twin(options.pooling), twin(options.pooling, None)
    in_one_chunk = JTCSELoss(two)
    in_one_chunk.length_chunks = 1
    variants = {
        BASES[0]: (one, MultipleNegativesRankingLoss(one), 2),
        BASES[1]: (one, SimCSELoss(one), 1),
        "RankCSELoss, CoSENT form, one tower": (one, RankCSELoss(one, ranking="cosent"), 1),
        "LSRNSLoss, one tower": (one, LSRNSLoss(one), 1),
        "LSRNSLoss, CoSENT form, one tower": (one, LSRNSLoss(one, rank_loss="cosent"), 1),
        "JTCSELoss, one chunk": (two, in_one_chunk, 1),
        "JTCSELoss": (two, JTCSELoss(two), 1),
        "JTCSELoss, TNCSE setting": (
            apart,
            JTCSELoss(apart, cross_weight=0, direction="1_to_2"),
            1,
        ),
    }
    variants = {
        name: each for name, each in variants.items() if name in BASES or options.only in name
    }
    # Teacher vectors are computed beforehand; what they say makes no difference to the time.
    labels = torch.nn.functional.normalize(
        torch.randn(BATCH, 384, generator=torch.Generator().manual_seed(0))
    )
    optimizers = {
        id(model): torch.optim.AdamW(model.parameters(), lr=1e-6) for model in (one, two, apart)
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for step in range(options.steps + 1):
        batch = sentences[step * BATCH % (len(sentences) - BATCH) :][:BATCH]
        for name, (model, loss, columns) in variants.items():
            model.train()
            began = time.process_time()
            value = loss([model.preprocess(batch) for _ in range(columns)], labels)
            total = sum(value.values()) if isinstance(value, dict) else value
            total.backward()
            optimizers[id(model)].step()
            optimizers[id(model)].zero_grad()
            if step:
                seconds[name].append(time.process_time() - began)
                print(step, name, f"{seconds[name][-1]:.3f} s", flush=True)
    found = [
        {"step": name, "seconds": round(statistics.median(own), 3)}
        | {
            key: quartiles([each / one for one, each in zip(seconds[base], own)])
            for key, base in RATIOS.items()
        }
        for name, own in seconds.items()
    ]
    for row in found:
        print(row)
    keep(
        options.name,
        {"pooling": options.pooling, "batch": BATCH, "steps": options.steps, "rows": found},
    )


if __name__ == "__main__":
    main()
