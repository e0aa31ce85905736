"""What makes the two views of a stage's sentences, and whether they differ at all."""

from __future__ import annotations

from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.util import batch_to_device

from st_jtcse.errors import UserError
from st_jtcse.losses.views import encode_views
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.recipe.sentence_blocks import OF_TOKENS
from st_jtcse.training.view_collator import (
    COLUMN,
    CUTOFFS,
    TemplateViews,
    ViewCollator,
    take_cut_off,
)

SMALLEST_DIFFERENCE = 1e-6


def views_of(
    stage: StageSpec, model: SentenceTransformer, sentences: Dataset, arguments: Any, seed: int
) -> ViewCollator | None:
    """Return what makes a stage's views by draws of this seed; None where dropout alone does.

    Raises UserError for a view that the model does not go with, and for views that are equal.
    """
    collator = _collator(stage, model, arguments, seed) if stage.views else None
    refuse_equal_views(stage, model, sentences, collator)
    return collator


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
    count = min(int(stage.args.get("per_device_train_batch_size", 8)), len(sentences))
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
        rate = stage.model.dropout
        found = (
            f"its code reads no rate that 'dropout: {rate:g}' sets"
            if rate
            else "it has no active dropout"
        )
        way = "Take another model" if rate else "Give its model 'dropout: 0.1'"
        raise UserError(
            f"Stage {stage.name!r} would learn nothing: this model's two views of each sentence "
            "are equal (they differ "
            f"by {difference:g} at most), because {found}. {way}, or views that differ in another "
            "way, such as "
            "'views: crop'."
        )


def _collator(
    stage: StageSpec, model: SentenceTransformer, arguments: Any, seed: int
) -> ViewCollator | None:
    views = [*(stage.views or ())]
    views = views if len(views) > 1 else views * 2
    names = {view.type for view in views}
    if names <= {"dropout"} and len(views) == 2 and stage.declaration.views == "made":
        return None
    of_tokens = sorted(names & {*OF_TOKENS})
    if of_tokens and not isinstance(model[0], Transformer):
        raise UserError(
            f"Stage {stage.name!r}: the view '{of_tokens[0]}' changes rows of tokens, which "
            f"{type(model[0]).__name__} "
            "does not read; choose one of words, such as 'crop'."
        )
    if "mask" in names and model.tokenizer.mask_token_id is None:
        raise UserError(
            f"Stage {stage.name!r}: the view 'mask' needs a mask token in the model's vocabulary, "
            "found none; choose "
            "another view."
        )
    if names & CUTOFFS:
        take_cut_off(model)
    made = stage.declaration.views == "made"
    if "template" in names and (names != {"template"} or not made):
        raise UserError(
            f"Stage {stage.name!r}: the view 'template' goes with its like alone, and with losses "
            "that encode both "
            "views in one, such as SimCSELoss; make all views templates, or none."
        )
    return ViewCollator(
        model.preprocess,
        prompts=arguments.prompts,
        router_mapping=arguments.router_mapping,
        model=model,
        views=views,
        seed=seed,
        in_one=made,
        templates=TemplateViews(model, views, COLUMN) if "template" in names else None,
    )
