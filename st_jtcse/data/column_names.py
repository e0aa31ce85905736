"""What the columns of each kind of rows are called where a source says nothing else."""

from __future__ import annotations

from typing import Literal

Kind = Literal["scores", "classes", "none"]

IMAGE = "image"
# Labelled rows, by what their labels are.
LABELLED: dict[Kind, tuple[str, ...]] = {
    "scores": ("sentence1", "sentence2", "score"),
    "classes": ("sentence1", "sentence2", "label"),
    "none": ("anchor", "positive", "negative"),
}
GRADED, SAME_OR_NOT = LABELLED["scores"], LABELLED["classes"]
TOPICS, TOPICS_OF_IMAGES = ("text", "label"), (IMAGE, "label")
QUERIES, TRIPLETS = ("query", "relevant"), LABELLED["none"]
# Sets to measure on; the first that fits is meant.
SETS = (GRADED, SAME_OR_NOT, TOPICS, TOPICS_OF_IMAGES, QUERIES, TRIPLETS)
