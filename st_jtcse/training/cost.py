"""What encoding costs, in operations that no machine changes."""

from __future__ import annotations

import torch
from sentence_transformers import SentenceTransformer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

# Thirty-two tokens with the two special ones, about the length of a sentence of the STS sets.
_SENTENCE = " ".join(["the"] * 30)


def gmac(model: SentenceTransformer) -> float:
    """Return the multiply-accumulate operations of encoding one sentence of 32 tokens, in units of 10^9.

    Args:
        model: The model; its matrix products are counted, which is all but a few thousandths of the work.
    """
    features = {
        key: value.to(model.device) if isinstance(value, torch.Tensor) else value
        for key, value in model.preprocess([_SENTENCE]).items()
    }
    # The plain kernel is the one whose products the counter sees on every device.
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.eval()(features)
    return counter.get_total_flops() / 2e9
