"""How many of the ten nearest neighbours models keep, of general sentences of each bundled kind.

Run: python benchmarks/kept_kinds.py MODEL ... [--start MODEL] [--files FILE ...]
    [--shares 1 0.8 0.6] [--test FILE ...]
A line a model: of 100 neighbours by the start, how many are neighbours by the model, kind by kind,
the least of them, which `evaluate.kept_neighbours` bounds, and its scores on sets with labels. The
start is the embedded model unless another is named. With --shares each model is mixed with it, as a
stage does that loses too much. The figures go into benchmarks/results/kept_kinds.json.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from kept import keep
from sentence_transformers import SentenceTransformer

from st_jtcse import embedded
from st_jtcse.bundled import folder
from st_jtcse.data import Source
from st_jtcse.evaluation import load_own_set
from st_jtcse.evaluation.kept_neighbours import beside, sentences_set
from st_jtcse.modules import load_sentence_transformer

KINDS = folder("recipes") / "general"


def mixed(
    start: SentenceTransformer, name: str, shares: Sequence[float]
) -> Iterator[tuple[float, SentenceTransformer]]:
    """Yield a model with these shares of its weights, the rest being the start's."""
    model = load_sentence_transformer(name)
    first = start.state_dict()
    last = {key: value.clone() for key, value in model.state_dict().items()}
    for share in shares:
        if share < 1:
            changes = {
                key: torch.lerp(first[key], value, share)
                for key, value in last.items()
                if value.is_floating_point()
            }
            model.load_state_dict(last | changes)
        yield share, model


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="folders of models, such as runs/mine/adapted")
    parser.add_argument("--start", help="what they came from; default: the embedded model")
    parser.add_argument("--files", nargs="*", type=Path, default=sorted(KINDS.glob("*.txt")))
    parser.add_argument("--shares", nargs="*", type=float, default=[1.0], help="the largest first")
    parser.add_argument("--test", nargs="*", type=Path, default=[], help="sets with labels")
    options = parser.parse_args()
    start = load_sentence_transformer(options.start or embedded.folder())
    kinds = [beside(sentences_set(Source(file), file.stem), start) for file in options.files]
    tests = [load_own_set(Source(file), file.stem) for file in options.test]
    names = [own.name for own in (*kinds, *tests)]
    print("\t".join(["model", "share", *names[: len(kinds)], "least", *names[len(kinds) :]]))
    found = {}
    for name in options.models:
        for share, model in mixed(start, name, options.shares):
            own = [100 * each.score(each.statistic(model)) for each in (*kinds, *tests)]
            kept, scores = own[: len(kinds)], own[len(kinds) :]
            cells = [f"{cell:.2f}" for cell in (*kept, min(kept), *scores)]
            print("\t".join([name, f"{share:g}", *cells]), flush=True)
            found[f"{name} {share:g}"] = {key: round(x, 2) for key, x in zip(names, own)}
    keep("kept_kinds", {"start": options.start or embedded.NAME, "kept": found})


if __name__ == "__main__":
    main()
