"""Evaluations: SentEval's and one's own sets as Sentence-Transformers evaluators, suites of MTEB
tasks, verdicts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from st_jtcse.evaluation.own_sets import OwnSetEvaluator, load_own_set
    from st_jtcse.evaluation.senteval_sts import SentEvalSTSEvaluator
    from st_jtcse.evaluation.senteval_transfer import LabelledTexts, SentEvalTransferEvaluator

_HOMES = {
    "LabelledTexts": "senteval_transfer",
    "OwnSetEvaluator": "own_sets",
    "SentEvalSTSEvaluator": "senteval_sts",
    "SentEvalTransferEvaluator": "senteval_transfer",
    "load_own_set": "own_sets",
}
__all__ = [
    "LabelledTexts",
    "OwnSetEvaluator",
    "SentEvalSTSEvaluator",
    "SentEvalTransferEvaluator",
    "load_own_set",
]


def __getattr__(name: str) -> Any:
    """Import an evaluator where it is asked for: the suites are listed without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
