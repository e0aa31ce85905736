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
    """Euclidean norms over S sentences."""

    hidden: NDArray[np.float64]  # of the CLS state h of the last layer, (S,)
    # Of the pooler output tanh(W h + b), (S,), at most the square root of H; None where the encoder has no pooler
    pooler: NDArray[np.float64] | None
    note: str | None = None  # what is to be known about the pooler, None if nothing is


def modulus(encoder: Encoder, sentences: Sequence[str]) -> Modulus:
    """Return the moduli of an encoder's CLS states and pooler outputs.

    A pooler that was never trained, such as the random one that transformers draws for a checkpoint without, is
    recognised by its bias, which is exactly zero, and told in the note.

    Args:
        encoder: From :func:`~st_jtcse.diagnostics.encoders_of`.
        sentences: The sentences; the norms come in the order of their lengths.

    References:
        JTCSE (Zong et al.), Eq. 1: the pooler outputs whose moduli the loss compares.
    """
    pooler = getattr(encoder.network, "pooler", None)
    note = None
    if pooler is None:
        note = "there is no pooler."
    elif not pooler.dense.bias.any():
        note = "the pooler was never trained (its bias is zero); its norms follow from the CLS state alone."
    hidden, pooled = [], []
    for batch in passes(encoder, sentences):
        hidden.append(_norms(batch.last_hidden[:, 0]))
        if pooler is not None:
            with torch.inference_mode():
                pooled.append(_norms(pooler(batch.last_hidden)))
    return Modulus(np.concatenate(hidden), np.concatenate(pooled) if pooled else None, note)


def _norms(states: torch.Tensor) -> NDArray[np.float64]:
    found: NDArray[np.float64] = states.double().norm(dim=-1).cpu().numpy()
    return found
