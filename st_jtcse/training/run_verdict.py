"""Whether a run has made its start better: its last model beside the one it starts from, as shipped."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from st_jtcse import embedded
from st_jtcse.diagnostics import unit_vectors
from st_jtcse.errors import UserError
from st_jtcse.evaluation.own_sets import OwnSet
from st_jtcse.evaluation.verdict import verdicts
from st_jtcse.recipe.schema import StageSpec
from st_jtcse.training.as_shipped import start_models
from st_jtcse.training.models import load_frozen
from st_jtcse.training.stage_inputs import Inputs

logger = logging.getLogger(__name__)
_EXAMPLES = 8


def beside_start(
    stages: Sequence[StageSpec], stage: StageSpec, inputs: Inputs, model: SentenceTransformer, has_score: bool
) -> dict[str, Any]:
    """Return what a stage's record says of its model beside the start: verdicts, and the cosines of a few pairs.

    They are of the test sets; the others have chosen the model and say nothing of it. There are none but of
    the run's last bi-encoder, and where it comes from one model, which `has_score` as shipped.
    """
    tests = {name: inputs.sets[name] for name in (stage.evaluate.test if stage.evaluate else ())}
    bi_encoders = [other.name for other in stages if other.model.cross_encoder is None]
    starts = start_models(stage, {other.name: other for other in stages})
    if not tests or not has_score or len(starts) != 1 or stage.name != bi_encoders[-1]:
        return {"verdicts": []}
    try:
        base = load_frozen(starts[0], embedded.place)
        told = [verdict.as_dict() for verdict in verdicts(base, model, tests)]
        return {"verdicts": told, "examples": _examples(base, model, tests)}
    except UserError as error:
        logger.warning("no verdict: %s", error)
        return {"verdicts": []}


def _examples(base: SentenceTransformer, model: SentenceTransformer, sets: Mapping[str, OwnSet]) -> dict[str, Any]:
    """Return rows of the first set of graded pairs, evenly by gold score, and their cosines by both models.

    The texts are left out: records are pushed with models.
    """
    name, pairs = next(((name, own.pairs) for name, own in sets.items() if own.pairs is not None), ("", None))
    if pairs is None:
        return {}
    order = np.argsort(pairs.scores, kind="stable")
    chosen = order[np.linspace(0, len(order) - 1, min(_EXAMPLES, len(order))).round().astype(int)]
    sides = [[side[row] for row in chosen] for side in (pairs.sentences1, pairs.sentences2)]
    found: dict[str, Any] = {"set": name, "rows": chosen.tolist()}
    for when, one in (("before", base), ("after", model)):
        first, second = (unit_vectors(one.encode(side, show_progress_bar=False)) for side in sides)
        found[when] = (first * second).sum(axis=1).astype(float).round(4).tolist()
    return found
