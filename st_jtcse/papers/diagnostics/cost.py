"""What encoding costs in weights and time, and what a score costs in operations."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sentence_transformers import SentenceTransformer
from torch import nn


def parameters(model: nn.Module) -> int:
    """Return the number of a model's weights."""
    return sum(parameter.numel() for parameter in model.parameters())


def eta(score: float, gmac: float) -> float:
    r"""Return the score bought with 10^9 multiply-accumulate operations, :math:`\eta = score /
    GMAC`.

    References:
        JTCSE (Zong et al.), Table VII.
    """
    return score / gmac


def encode_speed(model: SentenceTransformer, sentences: Sequence[str]) -> float:
    """Return how many sentences the model encodes in a second on its device, once and after a
    warm-up batch.
    """
    model.encode(list(sentences[:32]), show_progress_bar=False)
    began = time.perf_counter()
    model.encode(list(sentences), show_progress_bar=False)
    return len(sentences) / (time.perf_counter() - began)
