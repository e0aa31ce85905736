"""SentEval's sets as Sentence-Transformers evaluators, the papers' suites and checkpoints."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from st_jtcse.papers.evaluation.senteval_sts import SentEvalSTSEvaluator
    from st_jtcse.papers.evaluation.senteval_transfer import (
        LabelledTexts,
        SentEvalTransferEvaluator,
    )

_HOMES = {
    "LabelledTexts": "senteval_transfer",
    "SentEvalSTSEvaluator": "senteval_sts",
    "SentEvalTransferEvaluator": "senteval_transfer",
}
__all__ = ["LabelledTexts", "SentEvalSTSEvaluator", "SentEvalTransferEvaluator"]


def __getattr__(name: str) -> Any:
    """Import an evaluator where it is asked for: the suites are listed without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
