"""Lengths of an encoder's CLS states, before and after its pooler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from st_jtcse.diagnostics.encoders import Encoder, passes


@dataclass(frozen=True)
class Modulus:
    """Euclidean norms over S sentences.

    Args:
        hidden: Of the CLS state h of the last layer, (S,).
        pooler: Of the pooler output tanh(W h + b), (S,), at most the square root of H; None where the encoder has no
            trained pooler.
        note: Why there is no pooler, None if there is one.
    """

    hidden: NDArray[np.float64]
    pooler: NDArray[np.float64] | None
    note: str | None = None


def modulus(encoder: Encoder, sentences: Sequence[str]) -> Modulus:
    """Return the moduli of an encoder's CLS states and pooler outputs.

    A checkpoint without pooler weights gets random ones from transformers when it is loaded; they are recognised by their
    bias, which is exactly zero until it is trained, and left out.

    Args:
        encoder: From :func:`~st_jtcse.diagnostics.encoders_of`.
        sentences: The sentences; the norms come in the order of their lengths.

    References:
        JTCSE (Zong et al.), Sec. III, modulus of the pooler output; TNCSE (Zong et al., AAAI 2025).
    """
    pooler = getattr(encoder.network, "pooler", None)
    note = None
    if pooler is None:
        note = "The encoder has no pooler."
    elif not pooler.dense.bias.any():
        note = "The encoder's pooler was never trained (its bias is zero)."
    hidden, pooled = [], []
    for batch in passes(encoder, sentences):
        hidden.append(_norms(batch.last_hidden[:, 0]))
        if pooler is not None and note is None:
            with torch.inference_mode():
                pooled.append(_norms(pooler(batch.last_hidden)))
    return Modulus(np.concatenate(hidden), np.concatenate(pooled) if pooled else None, note)


def _norms(states: torch.Tensor) -> NDArray[np.float64]:
    found: NDArray[np.float64] = states.double().norm(dim=-1).cpu().numpy()
    return found
