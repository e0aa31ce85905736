"""How many of the ten nearest neighbours models keep, of general sentences of each bundled kind.

Run: python benchmarks/kept_kinds.py MODEL ... [--start MODEL] [--files FILE ...]
A line a model: of 100 neighbours by the start, how many are neighbours by the model, kind by kind.
The start is the embedded model unless another is named; the last column is the least of a row,
which `evaluate.kept_neighbours` bounds. The figures go into benchmarks/results/kept_kinds.json.
"""

import argparse
from pathlib import Path

from kept import keep

from st_jtcse import embedded
from st_jtcse.bundled import folder
from st_jtcse.data import Source
from st_jtcse.evaluation.kept_neighbours import beside, sentences_set
from st_jtcse.modules import load_sentence_transformer

KINDS = folder("recipes") / "general"


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="folders of models, such as runs/mine/adapted")
    parser.add_argument("--start", help="what they came from; default: the embedded model")
    parser.add_argument("--files", nargs="*", type=Path, default=sorted(KINDS.glob("*.txt")))
    options = parser.parse_args()
    start = load_sentence_transformer(options.start or embedded.folder())
    sets = [beside(sentences_set(Source(file), file.stem), start) for file in options.files]
    print("\t".join(["model", *(own.name for own in sets), "least"]))
    found = {}
    for name in options.models:
        model = load_sentence_transformer(name)
        shares = {own.name: round(100 * own.score(own.statistic(model)), 2) for own in sets}
        found[name] = shares
        cells = [f"{share:.2f}" for share in (*shares.values(), min(shares.values()))]
        print("\t".join([name, *cells]), flush=True)
    keep("kept_kinds", {"start": options.start or embedded.NAME, "kept": found})


if __name__ == "__main__":
    main()
