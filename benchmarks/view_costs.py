"""A training step of each way of making views and negatives against SimCSELoss's, in one run on one
machine.

Run: python benchmarks/view_costs.py [--rounds N]
The ways are the small recipes that extend simcse-mini: the same backbone, sentences and batch of
64. They take turns, and processor time counts: a ratio is the median of the rounds' own. A step
makes the views, encodes them and brings the loss back; the optimiser, which costs all of them the
same, is left out. The figures go into benchmarks/results.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace

from datasets import Dataset
from kept import keep

from st_jtcse import bundled, embedded
from st_jtcse.abilities.sentence_views import SentenceViews
from st_jtcse.abilities.sentence_views.view_collator import collator_of
from st_jtcse.recipe.load import load_recipe
from st_jtcse.recipe.named_arguments import build_loss
from st_jtcse.training.models import start_model

BATCH, WARM_UP = 64, 1
BASE = "simcse-mini"
WAYS = [
    BASE,
    "crop-mini",
    "esimcse-mini",
    "esimcse-queue-mini",
    "consert-mini",
    "arccse-mini",
    "arccse-triplets-mini",
]
WAYS += [
    "sncse-mini",
    "promptbert-mini",
    "pcl-mini",
    "iscse-mini",
    "whitenedcse-mini",
    "tsdae-mini",
]
WAYS += ["diffcse-mini", "infocse-mini"]
# What a batch calls the columns of a loss.
COLUMNS = ("sentence_", "view_b_")


def way(name: str, sentences: list[str]) -> Callable[[int], float]:
    """Return what takes a step of a recipe on one of the batches, and says how long."""
    (stage,) = load_recipe(name).recipe.stages
    model = start_model(stage, embedded.place, 0)
    rows = Dataset.from_dict({"sentence": sentences})
    given = SentenceViews().of(stage)
    arguments = SimpleNamespace(prompts=None, router_mapping=None)
    views = None if given is None else collator_of(stage, model, given, arguments, 0)
    assert stage.loss is not None
    loss = build_loss(stage.loss, model, seed=0)
    model.train()

    def step(number: int) -> float:
        start = number * BATCH % (len(sentences) - BATCH)
        batch = [rows[at] for at in range(start, start + BATCH)]
        began = time.process_time()
        if views is None:
            features = [model.preprocess([row["sentence"] for row in batch])]
        else:
            made = views(batch)
            parts = [
                {k.removeprefix(own): made[k] for k in made if k.startswith(own)} for own in COLUMNS
            ]
            features = [part for part in parts if part]
        value = loss(features, None)
        (sum(value.values()) if isinstance(value, dict) else value).backward()
        model.zero_grad()
        return time.process_time() - began

    return step


def main() -> None:
    """Measure the ways, print their ratios and keep them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=12, help=f"timed rounds, after {WARM_UP} for warm-up"
    )
    parser.add_argument(
        "--text", default=str(bundled.folder("recipes") / "quickstart" / "sentences.txt")
    )
    options = parser.parse_args()
    with open(options.text, encoding="utf-8") as file:
        sentences = [line.strip() for line in file if line.strip()]
    steps = {name: way(name, sentences) for name in WAYS}
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(WARM_UP + options.rounds):
        for name, step in steps.items():
            seconds[name].append(step(number))
    found = {}
    for name, own in seconds.items():
        pairs = list(zip(own, seconds[BASE]))[WARM_UP:]
        ratio = statistics.median(one / base for one, base in pairs)
        found[name] = {
            "seconds": round(statistics.median(own[WARM_UP:]), 3),
            "ratio": round(ratio, 2),
        }
        print(f"{name:22s} {found[name]['seconds']:8.3f} s {ratio:6.2f}x")
    keep("view_costs", {"batch": BATCH, "rounds": options.rounds, "ways": found})


if __name__ == "__main__":
    main()
