"""What `dev: unlabelled` compares a stage's model with: its teachers among their neighbours, on
held-out sentences.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from st_jtcse.data.arrow_files import DEFAULT_CACHE
from st_jtcse.data.neighbours import neighbourhood_means, topic_weight
from st_jtcse.data.teachers import with_teacher_labels
from st_jtcse.errors import UserError
from st_jtcse.evaluation.unlabelled import neighbours_set
from st_jtcse.recipe.data_blocks import DEV
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.recipe.sentence_blocks import NeighboursSpec
from st_jtcse.training.models import load_frozen, resolver
from st_jtcse.training.run_folder import RunFolder
from st_jtcse.training.stage_inputs import Inputs, evaluator_of


def with_reference(
    stage: StageSpec,
    model: SentenceTransformer,
    inputs: Inputs,
    folder: RunFolder,
    cache_dir: Path | None,
) -> Inputs:
    """Return a stage's inputs with the evaluator that held-out sentences make, if there are any.

    Its reference are the vectors of the stage's teachers, or without any of the model that it
    starts from, drawn to their neighbours among the training text as far as that has topics. Raises
    UserError where a teacher cannot be loaded.
    """
    if inputs.held_out is None or inputs.sentences is None:
        return inputs
    texts = inputs.held_out.dataset["sentence"][:]
    teachers = [load_frozen(spec, resolver(folder)) for spec in stage.teachers] or [model]
    weights = [spec.weight for spec in stage.teachers] or [1.0]
    form = stage.declaration.teachers or "sum"
    text, held = (
        with_teacher_labels(
            part.dataset, part.sha256, teachers, weights, cache_dir or DEFAULT_CACHE, form=form
        ).with_format("numpy")["label"][:]
        for part in (inputs.sentences, inputs.held_out)
    )
    near = stage.neighbours or NeighboursSpec.model_validate({})
    weight = topic_weight(text, near.count) if near.weight is None else near.weight
    if not stage.teachers and not weight:
        raise UserError(
            f"Stage {stage.name!r}: 'dev: unlabelled' compares with teachers or with topics; the "
            "stage has no teachers "
            "and its text no topics, so the start would always be the best; give teachers, graded "
            "pairs in "
            "evaluate.dev, or no eval_strategy: then the last step is the result."
        )
    reference = neighbourhood_means(np.asarray(held), near.count, weight, np.asarray(text))
    own = neighbours_set(texts, reference, inputs.held_out.sha256)
    return replace(
        inputs,
        sets=inputs.sets | {DEV: own},
        evaluators={DEV: evaluator_of(stage, DEV, own)} | inputs.evaluators,
    )
