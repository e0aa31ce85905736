"""What encoding costs, in operations that no machine changes."""

from __future__ import annotations

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

# Thirty-two tokens with the two special ones, about the length of a sentence of the STS sets.
_SENTENCE = " ".join(["the"] * 30)
# A cross-encoder reads both sentences of a pair at once: sixty-four tokens with three special ones.
_PAIR = (_SENTENCE, _SENTENCE + " the")


def gmac(model: SentenceTransformer | CrossEncoder) -> float:
    """Return the multiply-accumulate operations of one input, in units of 10^9.

    That is a sentence of 32 tokens, or a pair of 64 for a cross-encoder.

    Args:
        model: The model; its matrix products are counted, which is all but a few thousandths of the work.
    """
    features = {
        key: value.to(model.device) if isinstance(value, torch.Tensor) else value
        for key, value in model.preprocess([_PAIR if isinstance(model, CrossEncoder) else _SENTENCE]).items()
    }
    # The plain kernel is the one whose products the counter sees on every device.
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.eval()(features)
    return counter.get_total_flops() / 2e9
