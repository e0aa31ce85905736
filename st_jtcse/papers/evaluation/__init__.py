"""SentEval's sets as Sentence-Transformers evaluators, the papers' suites and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from st_jtcse.lazy_names import lazy_names

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

# The suites are listed without torch.
__getattr__ = lazy_names(__name__, _HOMES)
