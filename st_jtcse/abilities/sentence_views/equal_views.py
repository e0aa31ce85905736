"""Whether the two views of a stage's sentences differ at all."""

from __future__ import annotations

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device

from st_jtcse.abilities.dropout import Dropout
from st_jtcse.abilities.sentence_views.view_collator import COLUMN, ViewCollator
from st_jtcse.errors import UserError
from st_jtcse.losses.views import encode_views
from st_jtcse.recipe.schema import StageSpec

SMALLEST_DIFFERENCE = 1e-6


def refuse_equal_views(
    stage: StageSpec,
    model: SentenceTransformer,
    sentences: Dataset,
    collator: ViewCollator | None = None,
) -> None:
    """Encode both views of a stage's first batch as in training, and raise UserError where no
    number of it differs.

    The loss of equal views tells nothing: InfoNCE stays near ln B, and the model would pass for
    trained. Neither the model nor a random state is changed, and a loss that makes no views has
    nothing to refuse.
    """
    if stage.declaration.views != "made":
        return
    rows = [sentences[at] for at in range(min(stage.batch_size, len(sentences)))]
    difference = _difference(model, rows, collator)
    if difference >= SMALLEST_DIFFERENCE:
        return
    found, way = "it has no active dropout", "Give its model 'dropout: 0.1'"
    if rate := Dropout().of(stage):
        found, way = f"its code reads no rate that 'dropout: {rate:g}' sets", "Take another model"
    raise UserError(
        f"Stage {stage.name!r} would learn nothing: this model's two views of each sentence "
        f"are equal (they differ by {difference:g} at most), because {found}. {way}, or views "
        "that differ in another way, such as 'views: crop'."
    )


def _difference(
    model: SentenceTransformer, rows: list[dict[str, str]], collator: ViewCollator | None
) -> float:
    """Return the largest difference between the two views of some rows, as a loss encodes them."""
    device, training = model.device, model.training
    drawn_on = [] if device.type == "cpu" else [device]
    features = {}
    for key, value in (collator(rows) if collator else {}).items():
        if key.startswith(COLUMN):
            features[key.removeprefix(f"{COLUMN}_")] = value
    features = batch_to_device(features or model.preprocess([row[COLUMN] for row in rows]), device)
    try:
        with torch.random.fork_rng(drawn_on, device_type=device.type), torch.no_grad():
            both = encode_views(model.train(), features)["sentence_embedding"]
    finally:
        model.train(training)
    view_a, view_b, *_ = both.split(len(rows))
    return float((view_a - view_b).abs().max())
