"""Whether a run has made its start better: its last model beside the one it starts from, as shipped."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from sentence_transformers import SentenceTransformer

from st_jtcse import embedded
from st_jtcse.errors import UserError
from st_jtcse.evaluation.verdict import verdicts
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.as_shipped import start_models
from st_jtcse.training.models import load_frozen
from st_jtcse.training.stage_inputs import Inputs

logger = logging.getLogger(__name__)


def beside_start(
    stages: Sequence[StageSpec], stage: StageSpec, inputs: Inputs, model: SentenceTransformer, has_score: bool
) -> list[dict[str, Any]]:
    """Return the verdicts on a stage's model, by the test sets; the others have chosen the model and say nothing of it.

    There are none but of the run's last bi-encoder, and where it comes from one model, which `has_score` as shipped.
    """
    tests = {name: inputs.sets[name] for name in (stage.evaluate.test if stage.evaluate else ())}
    bi_encoders = [other.name for other in stages if other.model.cross_encoder is None]
    starts = start_models(stage, {other.name: other for other in stages})
    if not tests or not has_score or len(starts) != 1 or stage.name != bi_encoders[-1]:
        return []
    try:
        base = load_frozen(starts[0], embedded.place)
        return [verdict.as_dict() for verdict in verdicts(base, model, tests)]
    except UserError as error:
        logger.warning("no verdict: %s", error)
        return []
