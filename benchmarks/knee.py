"""What each gear of `adapt` gains beside the processor time that it takes: the picture of
docs/adapt.md.

Run: python benchmarks/knee.py --labels bank=FILE --run bank:minutes:FOLDER:SECONDS ...
A run is the output folder of `st-train adapt` on a text, whose labelled sentences are FILE; its
seconds are those of `time`, user and system. Runs are added to benchmarks/results/knee.json, from
which the picture is drawn, also without a new one. Needs pip install 'st-jtcse[plots]'.
"""

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from kept import RESULTS, keep

from st_jtcse.data import Source
from st_jtcse.embedded import folder as embedded
from st_jtcse.evaluation import load_own_set
from st_jtcse.modules import load_sentence_transformer
from st_jtcse.reports.drawing import house_style, legend_below, panels, series, to_bytes

GEARS = ("seconds", "minutes", "full")
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "knee.svg"


def scored(runs: list[str], labels: dict[str, Path]) -> list[dict[str, Any]]:
    """Return what each run gained over the embedded model on the labels of its text, in points."""
    found: list[dict[str, Any]] = []
    for run in runs:
        text, gear, folder, seconds = run.split(":")
        own = load_own_set(Source(labels[text]), text)
        before, after = (
            100 * own.score(own.statistic(load_sentence_transformer(place)))
            for place in (embedded(), Path(folder) / "adapted")
        )
        point = {"text": text, "gear": gear, "seconds": float(seconds), "before": round(before, 2)}
        found.append(point | {"after": round(after, 2), "gain": round(after - before, 2)})
        print(found[-1])
    return found


def drawn(runs: list[dict[str, Any]]) -> bytes:
    """Return the picture: a line a text, a point a gear, the mean of its runs."""
    texts: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        texts[run["text"]][run["gear"]].append((run["seconds"], run["gain"]))
    with house_style():
        figure, (axes,) = panels(1, 6.0, least=6.0, height=3.2)
        for (text, gears), look in zip(sorted(texts.items()), series()):
            known = [gear for gear in GEARS if gear in gears]
            points = [tuple(map(statistics.mean, zip(*gears[gear]))) for gear in known]
            axes.plot(*zip((0.0, 0.0), *points), label=text, **look)
            for gear, point in zip(known, points):
                axes.annotate(gear, point, (0, 7), textcoords="offset points", ha="center")
        axes.margins(0.1, 0.15)
        axes.set_xlabel("seconds of a processor, one thread, nothing computed before")
        axes.set_ylabel("points gained")
        legend_below(figure, axes)
    return to_bytes(figure, "svg")


def main() -> None:
    """Score the runs that are given, and draw all that are known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", nargs="*", default=[], help="TEXT=FILE of labelled sentences")
    parser.add_argument("--run", nargs="*", default=[], help="TEXT:GEAR:FOLDER:SECONDS")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="SVG to write")
    options = parser.parse_args()
    known = RESULTS / "knee.json"
    runs = json.loads(known.read_text(encoding="utf-8"))["runs"] if known.is_file() else []
    labels = {text: Path(file) for text, _, file in (one.partition("=") for one in options.labels)}
    if new := scored(options.run, labels):
        runs += new
        keep("knee", {"runs": runs})
    options.picture.write_bytes(drawn(runs))


if __name__ == "__main__":
    main()
