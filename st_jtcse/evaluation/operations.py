"""How many operations one input costs a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

# Sixty-four tokens with the two special ones: JTCSE's figure of BERT-base, 5.40, fits that length.
_SENTENCE = " ".join(["the"] * 62)
# A cross-encoder reads both sentences of a pair at once: 128 tokens with three special ones.
# The products with weights; those of attention are of other kinds.
_LINEAR = (torch.ops.aten.addmm, torch.ops.aten.mm)
_PAIR = (_SENTENCE, _SENTENCE + " the")


def gmac(model: SentenceTransformer | CrossEncoder, *, linear_only: bool = False) -> float:
    """Return the multiply-accumulate operations of one input, in units of 10^9.

    That is a sentence of 64 tokens, or a pair of 128 for a cross-encoder; a model with a lower
    limit reads as many as that. A model of images reads one. The matrix products are counted, which
    is all but a few thousandths of the work; with `linear_only` those with weights alone, as the
    Thop package counts, by which JTCSE's Table VII was made.
    """
    given: Any = _PAIR if isinstance(model, CrossEncoder) else _SENTENCE
    if not model.supports("text"):
        given = np.zeros((3, 32, 32), np.uint8)
    features = {
        key: value.to(model.device) if isinstance(value, torch.Tensor) else value
        for key, value in model.preprocess([given]).items()
    }
    # The plain kernel is the one whose products the counter sees on every device.
    with (
        torch.inference_mode(),
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        model.eval()(features)
    counts = counter.get_flop_counts()["Global"]
    if linear_only:
        counts = {operation: counts.get(operation, 0) for operation in _LINEAR}
    return sum(counts.values()) / 2e9
