"""Evaluations: sets of the user as Sentence-Transformers evaluators, MTEB tasks, verdicts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from st_jtcse.evaluation.operations import gmac
    from st_jtcse.evaluation.own_sets import OwnSetEvaluator, load_own_set

_HOMES = {
    "OwnSetEvaluator": "own_sets",
    "gmac": "operations",
    "load_own_set": "own_sets",
}
__all__ = ["OwnSetEvaluator", "gmac", "load_own_set"]


def __getattr__(name: str) -> Any:
    """Import a name where it is asked for: the suites are listed without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
