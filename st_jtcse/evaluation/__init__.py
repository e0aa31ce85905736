"""The papers' evaluations: SentEval as Sentence-Transformers evaluators, and suites of MTEB tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from st_jtcse.evaluation.senteval_sts import SentEvalSTSEvaluator
    from st_jtcse.evaluation.senteval_transfer import LabelledTexts, SentEvalTransferEvaluator

__all__ = ["LabelledTexts", "SentEvalSTSEvaluator", "SentEvalTransferEvaluator"]


def __getattr__(name: str) -> Any:
    """Import an evaluator where it is asked for: the suites are listed without torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from st_jtcse.evaluation import senteval_sts, senteval_transfer

    return getattr(senteval_sts if name == "SentEvalSTSEvaluator" else senteval_transfer, name)
