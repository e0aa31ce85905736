"""What losses need of a stage's data, by the names that recipes give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What the labels of these losses are; the others take sentences, or tell themselves what they need.
LABELS_OF = {
    "CoSENTLoss": "scores",
    "AnglELoss": "scores",
    "CosineSimilarityLoss": "scores",
    "SoftmaxLoss": "classes",
    "ContrastiveLoss": "classes",
    "OnlineContrastiveLoss": "classes",
    "TripletLoss": "none",
}
LABELS_OF_CROSS_ENCODERS = {
    "CrossEncoderCoSENTLoss": "scores",
    "MSELoss": "scores",
    "BinaryCrossEntropyLoss": "scores",
    "CrossEntropyLoss": "classes",
}

# Losses of bi-encoders that read a vector a sentence as its label, as teachers give it; no other loss does.
OF_TEACHERS = ("RankCSELoss", "LSRNSLoss", "MSELoss", "EmbedDistillLoss")
# Losses of bi-encoders that make both views of one column themselves, and one that is given them as two.
OF_ONE_COLUMN = ("SimCSELoss", "JTCSELoss", "RankCSELoss", "LSRNSLoss")
OF_TWO_COLUMNS = "MultipleNegativesRankingLoss"
# Losses of bi-encoders that train on sentences alone, or with their teachers' vectors.
OF_SENTENCES = (*OF_ONE_COLUMN, "MSELoss", "EmbedDistillLoss")
# Losses that compare the rows of a batch with each other.
IN_BATCH = (*OF_ONE_COLUMN, OF_TWO_COLUMNS, "CoSENTLoss", "AnglELoss", "CrossEncoderCoSENTLoss")
# The one loss of cross-encoders with several outputs.
OF_SEVERAL_OUTPUTS = "CrossEntropyLoss"


@dataclass(frozen=True)
class Classes:
    """How many classes a loss tells apart.

    Args:
        count: Labels are below it.
        key: Where the stage says so; None if the loss allows no other number.
    """

    count: int
    key: tuple[str, str] | None


def needs_teachers(loss: str, arguments: Mapping[str, Any]) -> bool:
    """Say whether a bi-encoder's loss cannot be computed without teachers.

    Args:
        loss: Its name.
        arguments: What the recipe gives it.
    """
    switched_off = loss == "RankCSELoss" and arguments.get("distillation_weight") == 0
    return loss in OF_TEACHERS and not switched_off


def classes_of(loss: str, arguments: Mapping[str, Any], outputs: int | None) -> Classes | None:
    """Return the classes of a loss; None if its labels are none, or if the recipe does not tell.

    Args:
        loss: Its name.
        arguments: What the recipe gives it.
        outputs: Outputs of the cross-encoder, if the model is one.
    """
    if loss in ("ContrastiveLoss", "OnlineContrastiveLoss"):
        return Classes(2, None)
    count: Any = None
    key = ("loss", "num_labels")
    if loss == "SoftmaxLoss":
        count = arguments.get("num_labels")
    elif loss == OF_SEVERAL_OUTPUTS:
        count, key = outputs, ("model", "num_labels")
    return Classes(count, key) if isinstance(count, int) else None
