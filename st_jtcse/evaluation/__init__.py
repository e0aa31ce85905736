"""The papers' evaluations: SentEval as Sentence-Transformers evaluators, and suites of MTEB tasks."""

from __future__ import annotations

from st_jtcse.evaluation.senteval_sts import SentEvalSTSEvaluator
from st_jtcse.evaluation.senteval_transfer import LabelledTexts, SentEvalTransferEvaluator

__all__ = ["LabelledTexts", "SentEvalSTSEvaluator", "SentEvalTransferEvaluator"]
