"""Evaluations: sets of the user as Sentence-Transformers evaluators, MTEB tasks, verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from st_jtcse.lazy_names import lazy_names

if TYPE_CHECKING:
    from st_jtcse.evaluation.operations import gmac
    from st_jtcse.evaluation.own_sets import OwnSetEvaluator, load_own_set

_HOMES = {
    "OwnSetEvaluator": "own_sets",
    "gmac": "operations",
    "load_own_set": "own_sets",
}
__all__ = ["OwnSetEvaluator", "gmac", "load_own_set"]

# The suites are listed without torch.
__getattr__ = lazy_names(__name__, _HOMES)
