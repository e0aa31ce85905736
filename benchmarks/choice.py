"""What `dev: unlabelled` chooses among the models that same_time.py trained, beside what labels
would choose.

Run: python benchmarks/choice.py --text NAME=TRAIN.txt [--text ...] --models FOLDER, after
same_time.py --models FOLDER The measure is adapt's: of 1,000 sentences that no model was trained
on, how many of the ten nearest neighbours are those of the sum of the start and the two copies,
drawn to the text's topics. The sum is that of the first seed. The figures go into
benchmarks/results.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from kept import RESULTS, keep
from same_time import NAME, SHIPPED, folder_of, lines_of
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from st_jtcse import embedded
from st_jtcse.data.neighbours import neighbourhood_means, topic_weight
from st_jtcse.evaluation.unlabelled import neighbours_set
from st_jtcse.recipe.load import load_recipe
from st_jtcse.recipe.schema import StageSpec

HELD_OUT = 1000


def summed(texts: list[str], stage: StageSpec, run: Path) -> npt.NDArray[np.float32]:
    """The vectors that a stage learns, before they are drawn to their neighbours."""
    total: Any = 0.0
    for teacher in stage.teachers:
        model = SentenceTransformer(str(run / teacher.model.removeprefix("stage:")), device="cpu")
        total = total + teacher.weight * model.encode(
            texts, normalize_embeddings=True, show_progress_bar=False
        )
    return np.asarray(total, dtype=np.float32)


def choice(text: str, source: Path, models: Path, cells: list[dict[str, Any]]) -> dict[str, Any]:
    """How the measure orders a text's models, and what its choice loses."""
    trained = (models / f"{text}.txt").read_text(encoding="utf-8").splitlines()
    others = sorted(lines_of(source) - set(trained))
    held = random.Random(0).sample(others, min(HELD_OUT, len(others)))
    stages = {stage.name: stage for stage in load_recipe("adapt", ["effort=full"]).stages}
    last, run = stages["distilled_copies"], models / folder_of("adapt", text, 1) / "run"
    assert last.neighbours is not None
    among, count = summed(trained, last, run), last.neighbours.count
    weight = topic_weight(among, count)
    own = neighbours_set(
        held, neighbourhood_means(summed(held, last, run), count, weight, among), ""
    )
    rows = []
    for cell in cells:
        way, seed = cell["way"], cell["seed"]
        place = (
            embedded.folder() if way == SHIPPED else models / folder_of(way, text, seed) / "model"
        )
        shared = own.score(own.statistic(SentenceTransformer(str(place), device="cpu")))
        rows.append({"way": way, "seed": seed, "shared": round(shared, 4), "score": cell["mean"]})
    shares, scores = ([row[key] for row in rows] for key in ("shared", "score"))
    chosen = max(rows, key=lambda row: row["shared"])
    found = {
        "text": text,
        "models": len(rows),
        "topic_weight": round(weight, 3),
        "chosen": chosen["way"],
    }
    lost, correlation = max(scores) - chosen["score"], float(spearmanr(shares, scores)[0])
    return found | {"loss": round(lost, 2), "correlation": round(correlation, 2), "rows": rows}


def main() -> None:
    """Measure, print and keep each text's choice."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", action="append", required=True, metavar="NAME=TRAIN.txt")
    parser.add_argument("--models", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = json.loads((RESULTS / f"{NAME}.json").read_text(encoding="utf-8"))["cells"]
    found = []
    for name, source in (text.split("=", 1) for text in options.text):
        own = [cell for cell in cells if cell["text"] == name]
        found.append(choice(name, Path(source), options.models, own))
        print({key: value for key, value in found[-1].items() if key != "rows"}, flush=True)
    keep("choice", {"held_out": HELD_OUT, "texts": found})


if __name__ == "__main__":
    main()
