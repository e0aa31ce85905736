"""An evaluation of sts7's size against encoding its unique sentences once, in one run on one
machine.

Run: python benchmarks/eval_cost.py [--layers N] [--rounds N]
Seven sets of the sizes of STS12 to STS16, STS-B and SICK-R, 18,850 pairs made of 26,000 short
sentences, are evaluated by MTEB and by SentEval's protocol with a random model of the embedded
backbone's width, reading the data included. Seconds of processor time, so that other work on the
machine does not count.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoConfig, AutoModel, AutoTokenizer

from st_jtcse import embedded
from st_jtcse.evaluation.jobs import Evaluated
from st_jtcse.evaluation.results import Results
from st_jtcse.evaluation.selection import named_suite, select
from st_jtcse.hashing import embedding_sha256
from st_jtcse.modules.joining import transformer_of

PAIRS = {
    "STS12": 3108,
    "STS13": 1500,
    "STS14": 3750,
    "STS15": 3000,
    "STS16": 1186,
    "STSB": 1379,
    "SICKR": 4927,
}
SENTENCES = 26_000
BATCH = 64
WORDS = (
    "a the one two man woman child dog cat horse runs sleeps eats plays near house river "
    "table "
    "ball red small"
).split()


def sentences() -> list[str]:
    """Return distinct sentences of four to nine words."""
    draw = random.Random(0)
    found: dict[str, None] = {}
    while len(found) < SENTENCES:
        found[" ".join(draw.choices(WORDS, k=draw.randint(4, 9)))] = None
    return list(found)


def write_sets(folder: Path, unique: list[str]) -> None:
    """Write the seven sets; every sentence is in one of them, some several times."""
    draw = random.Random(1)
    (folder / "sts").mkdir()
    start = 0
    for number, (name, count) in enumerate(PAIRS.items(), 1):
        end = (
            SENTENCES if number == len(PAIRS) else start + SENTENCES * count // sum(PAIRS.values())
        )
        own = unique[start:end]
        cells = own + draw.choices(own, k=2 * count - len(own))
        draw.shuffle(cells)
        rows = [
            {"sentence1": first, "sentence2": second, "score": draw.randint(0, 50) / 10}
            for first, second in zip(cells[::2], cells[1::2])
        ]
        path = folder / "sts" / f"{name.lower()}.test.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        start = end


def random_model(layers: int) -> SentenceTransformer:
    """Return a random encoder of the backbone's width."""
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(embedded.folder(), num_hidden_layers=layers)
    tokenizer = AutoTokenizer.from_pretrained(embedded.folder())
    encoder = transformer_of(
        Transformer, AutoModel.from_config(config), tokenizer, max_seq_length=64
    )
    return SentenceTransformer(
        modules=[encoder, Pooling(encoder.get_embedding_dimension(), "mean")], device="cpu"
    )


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of a piece of work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=2, help="layers of the model (default: 2)")
    parser.add_argument(
        "--rounds", type=int, default=1, help="rounds, of which the fastest count (default: 1)"
    )
    options = parser.parse_args()
    unique, model = sentences(), random_model(options.layers)
    evaluated = Evaluated(model, "random", embedding_sha256(model))

    def evaluate(suite: str, folder: Path) -> None:
        results = Results(evaluated, None)
        tables = [named_suite(suite)]
        results.run(tables, select(tables, folder), BATCH, lambda key, outcome: None)
        assert not results.data.missing, results.data.missing

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sets(folder, unique)
        import st_jtcse.evaluation.mteb_tasks  # noqa: F401  # MTEB's import is not part of an evaluation's cost

        model.encode(unique[:1000], batch_size=BATCH)
        work = {
            "encoding the unique sentences": lambda: model.encode(unique, batch_size=BATCH),
            "sts7 by MTEB": lambda: evaluate("sts7", folder),
            "sts7 by SentEval's protocol": lambda: evaluate("senteval-sts7", folder),
        }
        times: dict[str, list[float]] = {name: [] for name in work}
        for _ in range(options.rounds):
            for name, task in work.items():
                times[name].append(seconds(task))
    base = min(times["encoding the unique sentences"])
    for name, found in times.items():
        print(f"{name:32} {min(found):8.1f} s  {min(found) / base:5.2f}")


if __name__ == "__main__":
    main()
