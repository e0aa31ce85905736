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
    count = min(stage.batch_size, len(sentences))
    rows = [sentences[at] for at in range(count)]
    device, training = model.device, model.training
    drawn_on = [] if device.type == "cpu" else [device]
    made = collator(rows) if collator else {}
    features = {
        key.removeprefix(f"{COLUMN}_"): value
        for key, value in made.items()
        if key.startswith(COLUMN)
    }
    features = batch_to_device(features or model.preprocess([row[COLUMN] for row in rows]), device)
    try:
        with torch.random.fork_rng(drawn_on, device_type=device.type), torch.no_grad():
            view_a, view_b, *_ = encode_views(model.train(), features)["sentence_embedding"].split(
                count
            )
    finally:
        model.train(training)
    difference = float((view_a - view_b).abs().max())
    if difference < SMALLEST_DIFFERENCE:
        rate = Dropout().of(stage)
        found = (
            f"its code reads no rate that 'dropout: {rate:g}' sets"
            if rate
            else "it has no active dropout"
        )
        way = "Take another model" if rate else "Give its model 'dropout: 0.1'"
        raise UserError(
            f"Stage {stage.name!r} would learn nothing: this model's two views of each sentence "
            f"are equal (they differ by {difference:g} at most), because {found}. {way}, or views "
            "that differ in another way, such as 'views: crop'."
        )
